"""Llama 4: attention within chunks except in every fourth layer, one routed expert beside a shared one."""

from dataclasses import replace
from typing import Final

from service.sizing.architectures.building_blocks import Layers, RoutedExperts
from service.sizing.architectures.config_reader import MAXIMUM_LAYERS, MAXIMUM_TOKENS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layers_by_type,
    read_attention,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.experts import ExpertLayers, expert_decoder
from service.sizing.architectures.vision_towers import llama4_tower
from service.sizing.language_model import LayerKind, WeightTensor

FULL_EVERY: Final = 4
CHUNK_TOKENS: Final = 8192


def llama4(config: ConfigReader) -> Architecture:
    """The decoder under ``text_config``, with the vision tower where the file has one."""
    tower, text = config.optional_section("vision_config"), config.section("text_config")
    others = tuple(llama4_tower(tower, text.count("hidden_size"))) if tower else ()
    return llama4_text(text, prefix="language_model.model", head="language_model.lm_head", others=others)


def llama4_text(
    config: ConfigReader, *, prefix: str = "model", head: str = "lm_head", others: tuple[WeightTensor, ...] = ()
) -> Architecture:
    frame = replace(read_frame(config, prefix=prefix), head=head)
    bias, width = config.flag("attention_bias", default=False), config.count("intermediate_size")
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    chunked, full = _chunked_and_full(config, frame)
    chunk_tokens = config.count("attention_chunk_size", default=CHUNK_TOKENS, maximum=MAXIMUM_TOKENS)
    experts = ExpertLayers(
        RoutedExperts(frame.hidden_size, width, *read_expert_counts(config), router="router"),
        _layers_with_experts(config, frame),
        at="feed_forward",
        dense_at="feed_forward",
        dense_width=config.count("intermediate_size_mlp"),
        shared_width=width,
        shared_name="shared_expert",
    )
    return expert_decoder(
        config,
        frame,
        attention,
        experts,
        groups=(
            attention.layer_group(LayerKind.CHUNKED, chunked, chunk_tokens),
            attention.layer_group(LayerKind.FULL, full),
        ),
        others=others,
    )


def _chunked_and_full(config: ConfigReader, frame: Frame) -> tuple[Layers, Layers]:
    """Layers with rotary positions are chunked; an empty list of them means all but every fourth."""
    if config.has("layer_types"):
        kinds = layers_by_type(config, frame.layer_count, lambda _: False)
        return kinds.get(LayerKind.CHUNKED, ()), kinds.get(LayerKind.FULL, ())
    stated = config.counts("no_rope_layers", maximum=1)
    if stated and len(stated) != frame.layer_count:
        raise config.refuse("no_rope_layers", f"must hold {frame.layer_count} numbers, one for each layer, or none")
    rotary = stated or tuple((layer + 1) % FULL_EVERY != 0 for layer in frame.layers)
    return (
        tuple(layer for layer in frame.layers if rotary[layer]),
        tuple(layer for layer in frame.layers if not rotary[layer]),
    )


def _layers_with_experts(config: ConfigReader, frame: Frame) -> Layers:
    named = config.counts("moe_layers", maximum=MAXIMUM_LAYERS)
    if named:
        return tuple(layer for layer in frame.layers if layer in set(named))
    step = config.count("interleave_moe_layer_step", default=1)
    return tuple(range(step - 1, frame.layer_count, step))
