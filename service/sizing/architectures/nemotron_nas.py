"""Pruned Llama decoders (DeciLM, Nemotron Super 49B and Ultra 253B): a list says what is left of each layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention, Layers, linear, norms
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    read_frame,
    read_head_width,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.language_model import Component, LayerGroup, LayerKind, WeightTensor

ROUNDED_TO = 256


@dataclass(frozen=True, slots=True)
class Block:
    """What a layer has: KV heads or 0, the width of its feed-forward or 0, and matrices in the place of either."""

    kv_head_count: int
    feed_forward_width: int
    linear_attention: bool
    linear_feed_forward: bool


def nemotron_nas(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    sections = config.sections("block_configs")
    if len(sections) != frame.layer_count:
        raise config.refuse("block_configs", f"describes {len(sections)} layers, but there are {frame.layer_count}")
    head_count = config.count("num_attention_heads")
    width = read_head_width(config, frame.hidden_size, head_count)
    blocks = tuple(_block(section, frame.hidden_size, head_count) for section in sections)
    kept = sorted({block.kv_head_count for block in blocks} - {0}, reverse=True)
    attentions = [
        (
            GroupedQueryAttention(frame.hidden_size, head_count, kv_heads, width, width),
            tuple(layer for layer in frame.layers if blocks[layer].kv_head_count == kv_heads),
        )
        for kv_heads in kept
    ]
    without = tuple(layer for layer in frame.layers if not blocks[layer].kv_head_count)
    groups = [attention.layer_group(LayerKind.FULL, layers) for attention, layers in attentions]
    tensors = (
        *frame.tensors(),
        *(each for attention, layers in attentions for each in attention.tensors(frame.at("self_attn"), layers)),
        *_feed_forwards(config, frame, blocks),
        *_replacements(frame, blocks),
        *_norms(frame, blocks),
    )
    return frame.architecture(
        tensors,
        (*groups, LayerGroup(LayerKind.NONE, without)),
        head_count=head_count,
        kv_head_count=kept[0] if kept else head_count,
    )


def _block(section: ConfigReader, hidden_size: int, head_count: int) -> Block:
    attention, feed_forward = section.section("attention"), section.section("ffn")
    has_attention = not attention.flag("no_op", default=False)
    linear_attention = attention.flag("replace_with_linear", default=False)
    kv_head_count = 0
    if has_attention and not linear_attention:
        group = attention.count("n_heads_in_group")
        if head_count % group:
            raise attention.refuse("n_heads_in_group", f"is {group}, which does not divide {head_count} heads")
        kv_head_count = head_count // group
    has_feed_forward = not feed_forward.flag("no_op", default=False)
    linear_feed_forward = feed_forward.flag("replace_with_linear", default=False)
    width = _width(feed_forward, hidden_size) if has_feed_forward and not linear_feed_forward else 0
    return Block(
        kv_head_count,
        width,
        has_attention and linear_attention,
        has_feed_forward and linear_feed_forward,
    )


def _width(feed_forward: ConfigReader, hidden_size: int) -> int:
    """Two thirds of twice the hidden size times the multiplier, rounded up to 256, unless it is stated."""
    stated = feed_forward.optional_count("intermediate_size")
    if stated is not None:
        return stated
    width = feed_forward.scaled("ffn_mult", 2 * hidden_size, divided_by=3)
    return -(-width // ROUNDED_TO) * ROUNDED_TO


def _feed_forwards(config: ConfigReader, frame: Frame, blocks: tuple[Block, ...]) -> Iterator[WeightTensor]:
    for width in sorted({block.feed_forward_width for block in blocks} - {0}):
        layers = tuple(layer for layer in frame.layers if blocks[layer].feed_forward_width == width)
        bias = config.flag("mlp_bias", default=False)
        yield from FeedForward(frame.hidden_size, width, bias=bias).tensors(frame.at("mlp"), layers)


def _replacements(frame: Frame, blocks: tuple[Block, ...]) -> Iterator[WeightTensor]:
    """One square matrix where attention or a feed-forward was."""
    square = (frame.hidden_size, frame.hidden_size)
    for name, component, layers in (
        ("self_attn.linear_attn", Component.ATTENTION, _where(blocks, "linear_attention")),
        ("mlp.linear_mlp", Component.MLP, _where(blocks, "linear_feed_forward")),
    ):
        if layers:
            yield from linear(frame.at(name), component, square, layers)


def _where(blocks: tuple[Block, ...], name: str) -> Layers:
    return tuple(layer for layer, block in enumerate(blocks) if getattr(block, name))


def _norms(frame: Frame, blocks: tuple[Block, ...]) -> Iterator[WeightTensor]:
    """None before a half that is not there."""
    halves = (
        (PRE_NORMS[0], [block.kv_head_count or block.linear_attention for block in blocks]),
        (PRE_NORMS[1], [block.feed_forward_width or block.linear_feed_forward for block in blocks]),
    )
    for name, present in halves:
        layers = tuple(layer for layer in frame.layers if present[layer])
        if layers:
            yield from norms(frame.at(""), (name,), frame.hidden_size, layers)
