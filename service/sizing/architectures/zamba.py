"""Zamba2: Mamba-2 layers, some with an attention block that is used again and again and kept once or twice."""

from collections.abc import Iterator
from dataclasses import replace

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention, Layers, linear, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import Architecture, Frame, read_frame, read_head_counts
from service.sizing.architectures.layer_lists import layers_by_word
from service.sizing.architectures.mamba_hybrids import MAXIMUM_KERNEL, state_precision
from service.sizing.architectures.state_space import Mamba2
from service.sizing.language_model import Component, LayerKind, WeightTensor

HYBRID = "hybrid"
WORDS = (HYBRID, "mamba", "linear_attention")  # the last two mean the same


def zamba2(config: ConfigReader) -> Architecture:
    """The shared block reads the hidden state beside the embedding, so it is twice as wide; each use has a cache.

    Small adapters and one matrix belong to each use. Source: Glorioso et al., "Zamba2", arXiv 2411.15242.
    """
    if config.flag("add_bias_linear", default=False):
        raise config.refuse("add_bias_linear", "is true, which is not modelled for this family")
    frame = replace(read_frame(config, tied_by_default=True), final_norm="final_layernorm")
    hybrid = _hybrid_layers(config, frame)
    if not hybrid:
        raise config.refuse("hybrid_layer_ids", "names no layer, and the family has a shared block")
    plain = tuple(layer for layer in frame.layers if layer not in set(hybrid))
    mixer, attention = _mixer(config, frame), _attention(config, frame)
    tensors = (
        *frame.tensors(),
        *_mamba_layers(mixer, frame, plain, hybrid),
        *linear(frame.at("linear"), Component.MLP, (frame.hidden_size, frame.hidden_size), hybrid),
        *_shared_blocks(config, frame, attention),
        *_adapters(config, frame, attention, len(hybrid)),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(frame.layers), attention.layer_group(LayerKind.FULL, hybrid)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        recurrent_state_precision=state_precision(config),
    )


def _hybrid_layers(config: ConfigReader, frame: Frame) -> Layers:
    if config.has("layers_block_type"):
        return layers_by_word(config, "layers_block_type", WORDS, frame.layer_count)[HYBRID]
    named = set(config.counts("hybrid_layer_ids", maximum=MAXIMUM_LAYERS) or ())
    return tuple(layer for layer in frame.layers if layer in named)


def _mixer(config: ConfigReader, frame: Frame) -> Mamba2:
    head_count = config.count("n_mamba_heads", default=8, maximum=MAXIMUM_HEADS)
    inner = config.count("mamba_expand", default=2) * frame.hidden_size
    return Mamba2(
        frame.hidden_size,
        head_count,
        config.count("mamba_headdim", default=max(1, inner // head_count)),
        config.count("mamba_ngroups", default=1),
        config.count("mamba_d_state", default=64),
        config.count("mamba_d_conv", default=4, maximum=MAXIMUM_KERNEL),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )


def _attention(config: ConfigReader, frame: Frame) -> GroupedQueryAttention:
    """Queries, keys and values of the doubled width, an output of the hidden size."""
    head_count, kv_head_count = read_head_counts(config)
    doubled = config.count("attention_hidden_size", default=2 * frame.hidden_size)
    width = config.count("attention_head_dim", default=max(1, doubled // head_count))
    return GroupedQueryAttention(doubled, head_count, kv_head_count, width, width)


def _mamba_layers(mixer: Mamba2, frame: Frame, plain: Layers, hybrid: Layers) -> Iterator[WeightTensor]:
    for at, layers in ((frame.at(""), plain), (frame.at("mamba_decoder"), hybrid)):
        if layers:
            yield from mixer.tensors(f"{at}.mamba", layers)
            yield from norms(at, ("input_layernorm",), frame.hidden_size, layers)


def _shared_blocks(config: ConfigReader, frame: Frame, attention: GroupedQueryAttention) -> Iterator[WeightTensor]:
    """Outside the layers, since they belong to none: ``num_mem_blocks`` of them, used in turn."""
    at, copies = "model.shared_transformer", config.count("num_mem_blocks", default=1, maximum=MAXIMUM_LAYERS)
    block = (
        *(each for each in attention.tensors(f"{at}.self_attn", ()) if not each.module.endswith("o_proj")),
        *linear(
            f"{at}.self_attn.o_proj",
            Component.ATTENTION,
            (frame.hidden_size, attention.head_count * attention.value_width),
            (),
            shard_limit=attention.head_count,
            row_parallel=True,
        ),
        *FeedForward(frame.hidden_size, config.count("intermediate_size"), fused=True).tensors(
            f"{at}.feed_forward", ()
        ),
        *norms(at, ("input_layernorm",), attention.hidden_size, ()),
        *norms(at, ("pre_ff_layernorm",), frame.hidden_size, ()),
    )
    yield from (replace(each, copies=copies) for each in block)


def _adapters(
    config: ConfigReader, frame: Frame, attention: GroupedQueryAttention, use_count: int
) -> Iterator[WeightTensor]:
    rank, at = config.count("adapter_rank", default=128), "model.shared_transformer"
    shapes = [("feed_forward.gate_up_proj", frame.hidden_size, 2 * config.count("intermediate_size"))]
    if config.flag("use_shared_attention_adapter", default=False):
        shapes += [(f"self_attn.{name}", attention.hidden_size, attention.hidden_size) for name in ("q", "k", "v")]
    for name, columns, rows in shapes:
        module = f"{at}.{name}_adapter_list"
        yield from linear(f"{module}.0", Component.MLP, (rank, columns), (), copies=use_count)
        yield from linear(f"{module}.1", Component.MLP, (rows, rank), (), copies=use_count)
