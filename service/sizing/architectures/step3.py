"""Step-3.5 and 3.7: a gate for every head, windows with heads of their own, experts after dense layers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from service.sizing.architectures.building_blocks import RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layer_element_count,
    layers_by_type,
    multi_token_prediction,
    read_attention,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import ExpertLayers
from service.sizing.architectures.vision import vision_linear, vision_norm, vision_tensor
from service.sizing.language_model import LayerKind, WeightTensor

FIRST_EXPERT_LAYER: Final = 3  # of a file that does not list them


def step3p7(config: ConfigReader) -> Architecture:
    """The decoder may lie under ``text_config``; the class has a vision tower, described by the file or not."""
    text = config.optional_section("text_config") or config
    frame = read_frame(text)
    attention = read_attention(text, frame.hidden_size, head_norms=True)
    attention = replace(attention, gate_width=attention.head_count)
    other = text.optional_section("attention_other_setting")
    windowed = attention
    if other is not None:
        windowed = read_attention(other, frame.hidden_size, head_norms=True)
        windowed = replace(windowed, gate_width=windowed.head_count)
    elif text.has("num_sliding_attention_heads"):
        heads = text.count("num_sliding_attention_heads", maximum=MAXIMUM_HEADS)
        windowed = replace(attention, head_count=heads, gate_width=heads)
    kinds = layers_by_type(text, frame.layer_count, lambda _: False)
    full, sliding = kinds.get(LayerKind.FULL, ()), kinds.get(LayerKind.SLIDING, ())
    if len(full) + len(sliding) != frame.layer_count:
        raise text.refuse("layer_types", "holds layers that are neither full nor sliding")
    experts = _expert_layers(text, frame)
    at = frame.at("self_attn")
    tensors = (
        *frame.tensors(),
        *(attention.tensors(at, full) if full else ()),
        *(windowed.tensors(at, sliding) if sliding else ()),
        *experts.tensors(frame),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
        *_tower(config.optional_section("vision_config") or ConfigReader({}, path="vision_config"), frame.hidden_size),
    )
    group = attention.layer_group(LayerKind.FULL, full)
    return frame.architecture(
        tensors,
        (group, windowed.layer_group(LayerKind.SLIDING, sliding, read_window(text, default=512))),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=(experts.experts.expert_count, experts.experts.experts_per_token),
        router_bias_count=experts.router_bias_count,
        mtp=multi_token_prediction(
            text.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16),
            decoder_layer_count=layer_element_count(tensors, frame.layer_count - 1),
            hidden_size=frame.hidden_size,
            kv_elements_per_token=group.kv_elements_per_token,
        ),
    )


def _expert_layers(text: ConfigReader, frame: Frame) -> ExpertLayers:
    width = text.count("moe_intermediate_size")
    return ExpertLayers(
        RoutedExperts(frame.hidden_size, width, *read_expert_counts(text)),
        _layers_with_experts(text, frame),
        dense_width=text.count("intermediate_size"),
        shared_width=text.count("share_expert_dim", "share_expert_dims", default=width),
        shared_name="share_expert",
        has_router_bias=text.flag("use_moe_router_bias", default=True),
    )


def _layers_with_experts(text: ConfigReader, frame: Frame) -> tuple[int, ...]:
    """A list, or the same list as a text with commas."""
    if not text.has("moe_layers_enum"):
        first = text.count("first_k_dense_replace", default=FIRST_EXPERT_LAYER, minimum=0)
        return frame.layers[first:]
    if text.holds_text("moe_layers_enum"):
        parts = [part.strip() for part in text.text("moe_layers_enum").split(",") if part.strip()]
        if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
            raise text.refuse("moe_layers_enum", "must name layers by number, with commas between")
        named = {int(part) for part in parts}
    else:
        named = set(text.counts("moe_layers_enum", maximum=MAXIMUM_LAYERS) or ())
    return tuple(layer for layer in frame.layers if layer in named)


def _tower(config: ConfigReader, text_hidden_size: int, at: str = "vision_model") -> Iterator[WeightTensor]:
    """Pre-norm layers with scales, then two convolutions that each halve the picture and double the width.

    Defaults and shapes: ``Step3p7VisionConfig`` of Hugging Face Transformers.
    """
    width = config.count("width", "hidden_size", default=1536)
    layer_count = config.count("layers", "num_hidden_layers", default=47, maximum=MAXIMUM_LAYERS)
    patch, image = config.count("patch_size", default=14), config.count("image_size", default=728)
    inner = config.scaled("mlp_ratio", width, default=8960 / 1536)
    yield vision_tensor(
        f"{at}.embeddings.patch_embedding", (width, config.count("num_channels", default=3), patch, patch)
    )
    yield vision_tensor(f"{at}.embeddings.position_embedding", ((image // patch) ** 2, width))
    yield from vision_norm(f"{at}.pre_layernorm", width)
    layers = f"{at}.layers"
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield from vision_linear(f"{layers}.self_attn.{name}", width, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc1", inner, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc2", width, inner, layer_count)
    for name in ("lambda_1", "lambda_2"):
        yield vision_tensor(f"{layers}.{name}", (width,), layer_count)
    for name in ("layernorm_before", "layernorm_after"):
        yield from vision_norm(f"{layers}.{name}", width, layer_count)
    for name, wide in (("downsampler1", width), ("downsampler2", 2 * width)):
        yield vision_tensor(f"{at}.{name}", (2 * wide, wide, 3, 3))
        yield vision_tensor(f"{at}.{name}.bias", (2 * wide,))
    yield vision_tensor("multi_modal_projector", (text_hidden_size, 4 * width))
