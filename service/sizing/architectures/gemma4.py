"""Gemma 4: wider heads in global layers, shared caches, embeddings for every layer, experts beside an MLP."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from service.sizing.architectures.building_blocks import (
    FeedForward,
    GroupedQueryAttention,
    Layers,
    RoutedExperts,
    linear,
    norms,
    vector,
)
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layers_by_type,
    read_expert_counts,
    read_frame,
    read_head_counts,
    read_head_width,
    read_window,
)
from service.sizing.architectures.dense import SANDWICH_NORMS
from service.sizing.architectures.vision_towers import gemma4_tower
from service.sizing.language_model import Component, LayerGroup, LayerKind, Sharding, WeightTensor

GLOBAL_EVERY: Final = 6
GLOBAL_HEAD_WIDTH: Final = 512
EXPERT_NORMS: Final = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
PER_LAYER_VOCABULARY: Final = 262_144


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers whose attention has one shape, and the window of those that slide."""

    attention: GroupedQueryAttention
    layers: Layers
    window_tokens: int | None

    def layer_group(self) -> LayerGroup:
        kind = LayerKind.FULL if self.window_tokens is None else LayerKind.SLIDING
        return self.attention.layer_group(kind, self.layers, self.window_tokens)


def gemma4(config: ConfigReader) -> Architecture:
    """The decoder under ``text_config``, with the vision tower where the file has one."""
    if config.has("audio_config"):
        raise config.refuse("audio_config", "describes an audio tower, which is not modelled")
    tower = config.optional_section("vision_config")
    text = config.section("text_config").taking(config, "tie_word_embeddings")
    return gemma4_text(
        text,
        prefix="model.language_model",
        others=tuple(gemma4_tower(tower, text.count("hidden_size"))) if tower else (),
    )


def gemma4_text(config: ConfigReader, *, prefix: str = "model", others: tuple[WeightTensor, ...] = ()) -> Architecture:
    frame = read_frame(config, tied_by_default=True, prefix=prefix)
    parts = [part for part in _attention_layers(config, frame) if part.layers]
    counts = read_expert_counts(config) if config.flag("enable_moe_block", default=False) else (0, 0)
    tensors = (
        *frame.tensors(),
        *(each for part in parts for each in part.attention.tensors(frame.at("self_attn"), part.layers)),
        *_feed_forwards(config, frame),
        *norms(frame.at(""), SANDWICH_NORMS, frame.hidden_size, frame.layers),
        *(_experts(config, frame, counts) if counts[0] else ()),
        *_per_layer_embeddings(config, frame),
        *others,
    )
    first = parts[0].attention
    return frame.architecture(
        tensors,
        (part.layer_group() for part in parts),
        head_count=first.head_count,
        kv_head_count=first.kv_head_count,
        experts=counts,
    )


def _attention_layers(config: ConfigReader, frame: Frame) -> Iterator[AttentionLayers]:
    """Windows and global layers, each with a cache or, in the last ``num_kv_shared_layers``, with an earlier one's."""
    kinds = layers_by_type(config, frame.layer_count, lambda layer: (layer + 1) % GLOBAL_EVERY != 0)
    shared_count = config.count("num_kv_shared_layers", default=0, minimum=0, maximum=MAXIMUM_LAYERS)
    first_shared = frame.layer_count - shared_count
    window_tokens = read_window(config, default=512)
    shapes = (
        (kinds.get(LayerKind.SLIDING, ()), _attention(config, frame), window_tokens),
        (kinds.get(LayerKind.FULL, ()), _global_attention(config, frame), None),
    )
    if sum(len(layers) for layers, _, _ in shapes) != frame.layer_count:
        raise config.refuse("layer_types", "holds layers that are neither full nor sliding")
    for layers, attention, window in shapes:
        own = tuple(layer for layer in layers if layer < first_shared)
        yield AttentionLayers(attention, own, window)
        if layers and not own and shared_count:
            raise config.refuse("num_kv_shared_layers", "leaves no layer of a kind to share the cache of")
    for layers, attention, window in shapes:
        sharing = tuple(layer for layer in layers if layer >= first_shared)
        yield AttentionLayers(replace(attention, has_own_cache=False), sharing, window)


def _attention(config: ConfigReader, frame: Frame) -> GroupedQueryAttention:
    head_count, kv_head_count = read_head_counts(config)
    width = read_head_width(config, frame.hidden_size, head_count, default=256)
    bias = config.flag("attention_bias", default=False)
    return GroupedQueryAttention(
        frame.hidden_size,
        head_count,
        kv_head_count,
        width,
        width,
        bias=bias,
        output_bias=bias,
        query_norm_width=width,
        key_norm_width=width,
    )


def _global_attention(config: ConfigReader, frame: Frame) -> GroupedQueryAttention:
    """Wider heads; where keys are values too, also other KV heads."""
    attention = _attention(config, frame)
    width = config.count("global_head_dim", default=GLOBAL_HEAD_WIDTH)
    keys_are_values = config.flag("attention_k_eq_v", default=False)
    kv_head_count = attention.kv_head_count
    if keys_are_values:
        kv_head_count = config.count("num_global_key_value_heads", default=kv_head_count, maximum=MAXIMUM_HEADS)
    if attention.head_count % kv_head_count:
        raise config.refuse("num_global_key_value_heads", f"does not divide {attention.head_count} heads")
    return replace(
        attention,
        kv_head_count=kv_head_count,
        key_width=width,
        value_width=width,
        query_norm_width=width,
        key_norm_width=width,
        keys_are_values=keys_are_values,
    )


def _feed_forwards(config: ConfigReader, frame: Frame) -> Iterator[WeightTensor]:
    """Layers that share a cache may have feed-forwards of twice the width."""
    width, at = config.count("intermediate_size"), frame.at("mlp")
    shared = config.count("num_kv_shared_layers", default=0, minimum=0, maximum=MAXIMUM_LAYERS)
    wide_count = shared if config.flag("use_double_wide_mlp", default=False) else 0
    usual, wide = frame.layers[: frame.layer_count - wide_count], frame.layers[frame.layer_count - wide_count :]
    if usual:
        yield from FeedForward(frame.hidden_size, width).tensors(at, usual)
    if wide:
        yield from FeedForward(frame.hidden_size, 2 * width).tensors(at, wide)


def _experts(config: ConfigReader, frame: Frame, counts: tuple[int, int]) -> Iterator[WeightTensor]:
    width = config.count("moe_intermediate_size", "expert_intermediate_size")
    experts = RoutedExperts(frame.hidden_size, width, *counts, router="router.proj")
    yield from experts.tensors(frame.at(""), frame.layers)
    yield vector(frame.at("router.scale"), frame.hidden_size, frame.layers)
    yield vector(frame.at("router.per_expert_scale"), counts[0], frame.layers)
    yield from norms(frame.at(""), EXPERT_NORMS, frame.hidden_size, frame.layers)


def _per_layer_embeddings(config: ConfigReader, frame: Frame) -> Iterator[WeightTensor]:
    """A small embedding for every layer in one table, read by row and never whole, and what folds it in."""
    width = config.count("hidden_size_per_layer_input", default=256, minimum=0)
    if not width:
        return
    rows = config.count("vocab_size_per_layer_input", default=PER_LAYER_VOCABULARY)
    all_layers = frame.layer_count * width
    yield WeightTensor(f"{frame.prefix}.embed_tokens_per_layer", Component.EMBEDDING, (rows, all_layers))
    projection = f"{frame.prefix}.per_layer_model_projection"
    yield from linear(projection, Component.MLP, (all_layers, frame.hidden_size), (), sharding=Sharding.REPLICATED)
    yield vector(f"{frame.prefix}.per_layer_projection_norm", width)
    for name, shape in (
        ("per_layer_input_gate", (width, frame.hidden_size)),
        ("per_layer_projection", (frame.hidden_size, width)),
    ):
        yield from linear(frame.at(name), Component.MLP, shape, frame.layers, sharding=Sharding.REPLICATED)
    yield vector(frame.at("post_per_layer_input_norm"), frame.hidden_size, frame.layers)
