"""Qwen3-Next and Qwen3.5: linear attention in three layers of four, gated attention in the fourth."""

from collections.abc import Iterator
from typing import Final

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    STATE_PRECISIONS,
    Architecture,
    Frame,
    layer_element_count,
    multi_token_prediction,
    read_attention,
    read_frame,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import qwen_expert_layers
from service.sizing.architectures.state_space import GatedDeltaNet
from service.sizing.architectures.vision import qwen3_tower
from service.sizing.language_model import LayerKind, MultiTokenPrediction, WeightTensor

LINEAR, FULL = "linear_attention", "full_attention"
INTERVAL: Final = 4


def qwen3_next(config: ConfigReader) -> Architecture:
    return _decoder(config, fused=True)


def qwen3_5(config: ConfigReader) -> Architecture:
    """The decoder lies under ``text_config``, the vision tower beside it."""
    tower = config.optional_section("vision_config")
    return _decoder(
        config.section("text_config").taking(config, "tie_word_embeddings"),
        fused=False,
        prefix="model.language_model",
        others=tuple(qwen3_tower(tower)) if tower else (),
    )


def _decoder(
    config: ConfigReader,
    *,
    fused: bool,
    prefix: str = "model",
    others: tuple[WeightTensor, ...] = (),
) -> Architecture:
    frame = read_frame(config, prefix=prefix)
    types = _layer_types(config, frame.layer_count)
    linear_layers, full_layers = (tuple(i for i, each in enumerate(types) if each == kind) for kind in (LINEAR, FULL))
    attention = _attention(config, frame.hidden_size)
    delta_net = _delta_net(config, frame.hidden_size, fused=fused)
    expert_layers = qwen_expert_layers(config, frame, shared=True) if config.has("num_experts") else None
    tensors = (
        *frame.tensors(),
        *(attention.tensors(frame.at("self_attn"), full_layers) if full_layers else ()),
        *(delta_net.tensors(frame.at("linear_attn"), linear_layers) if linear_layers else ()),
        *(expert_layers.tensors(frame) if expert_layers else _feed_forward(config, frame)),
        *norms(frame.prefix + ".layers.{layer}", PRE_NORMS, frame.hidden_size, frame.layers),
        *others,
    )
    return Architecture(
        layer_count=frame.layer_count,
        hidden_size=frame.hidden_size,
        vocabulary_size=frame.vocabulary_size,
        max_context_tokens=frame.max_context_tokens,
        attention_head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        tied_embedding=frame.tied,
        tensors=tensors,
        layer_groups=(
            *((delta_net.layer_group(linear_layers),) if linear_layers else ()),
            *((attention.layer_group(LayerKind.FULL, full_layers),) if full_layers else ()),
        ),
        expert_count=expert_layers.experts.expert_count if expert_layers else 0,
        experts_per_token=expert_layers.experts.experts_per_token if expert_layers else 0,
        recurrent_state_precision=config.choice(STATE_PRECISIONS, "mamba_ssm_dtype", default="auto"),
        mtp=_mtp(config, attention, tensors, (full_layers or linear_layers)[-1]),
    )


def _attention(config: ConfigReader, hidden_size: int) -> GroupedQueryAttention:
    bias = config.flag("attention_bias", default=False)
    return read_attention(config, hidden_size, bias=bias, output_bias=bias, head_norms=True, gated=True)


def _feed_forward(config: ConfigReader, frame: Frame) -> Iterator[WeightTensor]:
    return FeedForward(frame.hidden_size, config.count("intermediate_size")).tensors(frame.at("mlp"), frame.layers)


def _mtp(
    config: ConfigReader, attention: GroupedQueryAttention, tensors: tuple[WeightTensor, ...], layer: int
) -> MultiTokenPrediction | None:
    """The drafting module is a layer of full attention, shaped like ``layer``."""
    return multi_token_prediction(
        config.count("mtp_num_hidden_layers", default=0, minimum=0, maximum=16),
        decoder_layer_count=layer_element_count(tensors, layer),
        hidden_size=attention.hidden_size,
        kv_elements_per_token=2 * attention.kv_head_count * attention.key_width,
    )


def _layer_types(config: ConfigReader, layer_count: int) -> tuple[str, ...]:
    """The file's own list, or full attention in every ``full_attention_interval``-th layer."""
    types = config.texts("layer_types")
    if types is None:
        interval = config.count("full_attention_interval", default=INTERVAL)
        return tuple(FULL if (layer + 1) % interval == 0 else LINEAR for layer in range(layer_count))
    if len(types) != layer_count:
        raise config.refuse("layer_types", f"names {len(types)} layers, but there are {layer_count}")
    unknown = next((each for each in types if each not in (LINEAR, FULL)), None)
    if unknown is not None:
        raise config.refuse("layer_types", f"holds {unknown[:60]!r}; known here are {LINEAR} and {FULL}")
    return types


def _delta_net(config: ConfigReader, hidden_size: int, *, fused: bool) -> GatedDeltaNet:
    return GatedDeltaNet(
        hidden_size,
        config.count("linear_num_key_heads", maximum=MAXIMUM_HEADS),
        config.count("linear_num_value_heads", maximum=MAXIMUM_HEADS),
        config.count("linear_key_head_dim"),
        config.count("linear_value_head_dim"),
        config.count("linear_conv_kernel_dim", default=4, maximum=64),
        fused,
    )
