"""T5 and its descendants: an encoder and a decoder, whose layers also attend to the encoder's positions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from service.sizing.architectures.building_blocks import FeedForward, Layers, linear, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import Architecture, Frame, read_frame
from service.sizing.language_model import Component, LayerGroup, LayerKind, WeightTensor

FEED_FORWARDS: Final = {"relu": False, "gelu": False, "gated-gelu": True, "gated-silu": True}


def t5(config: ConfigReader) -> Architecture:
    """The decoder's layers are the model's; the encoder's are counted beside them, and run once for a request.

    Source: Raffel et al., "T5", arXiv 1910.10683; the gated variant of version 1.1.
    """
    encoder_count = config.layer_count("num_layers", "num_hidden_layers")
    decoder_count = config.layer_count("num_decoder_layers", default=encoder_count)
    frame = read_frame(config, layer_count=decoder_count, tied_by_default=True, prefix="decoder")
    frame = replace(frame, stack="block")
    head_count = config.count("num_heads", "num_attention_heads", maximum=MAXIMUM_HEADS)
    width = config.count("d_kv", default=64)
    gated = config.choice(FEED_FORWARDS, "feed_forward_proj", default="relu")
    up_names = ("wi_0", "wi_1") if gated else ("wi",)
    feed_forward = FeedForward(frame.hidden_size, config.count("d_ff"), gated=gated, up_names=up_names, down_name="wo")
    inner = head_count * width

    def stack(at: str, layers: Layers, parts: tuple[str, ...]) -> Iterator[WeightTensor]:
        for number, part in enumerate(parts):
            yield from _attention(f"{at}.layer.{number}.{part}", frame.hidden_size, inner, head_count, layers)
        yield from feed_forward.tensors(f"{at}.layer.{len(parts)}.DenseReluDense", layers)
        for number in range(len(parts) + 1):
            yield from norms(f"{at}.layer.{number}", ("layer_norm",), frame.hidden_size, layers)

    encoder = (
        replace(each, layers=(), copies=encoder_count * each.copies)
        for each in stack("encoder.block.{layer}", (0,), ("SelfAttention",))
    )
    tensors = (
        *_embeddings(config, frame, head_count),
        *encoder,
        *stack(frame.at(""), frame.layers, ("SelfAttention", "EncDecAttention")),
    )
    attention_width = 2 * inner
    group = LayerGroup(
        LayerKind.FULL,
        frame.layers,
        kv_head_count=head_count,
        source_kv_head_count=head_count,
        key_width=width,
        value_width=width,
        attention_width_decode=attention_width,
        attention_width_prefill=attention_width,
    )
    return frame.architecture(tensors, (group,), head_count=head_count, kv_head_count=head_count)


def _embeddings(config: ConfigReader, frame: Frame, head_count: int) -> Iterator[WeightTensor]:
    """One table for both halves, a head unless it is tied, relative positions in the first layer of each half."""
    table = (frame.vocabulary_size, frame.hidden_size)
    yield WeightTensor("shared", Component.EMBEDDING, table)
    if not frame.tied:
        yield WeightTensor("lm_head", Component.LM_HEAD, table)
    buckets = config.count("relative_attention_num_buckets", default=32, maximum=MAXIMUM_LAYERS)
    for half in ("encoder", "decoder"):
        module = f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias"
        yield WeightTensor(module, Component.EMBEDDING, (buckets, head_count))
        yield from norms(half, ("final_layer_norm",), frame.hidden_size, ())


def _attention(at: str, hidden_size: int, inner: int, head_count: int, layers: Layers) -> Iterator[WeightTensor]:
    for name in ("q", "k", "v"):
        yield from linear(f"{at}.{name}", Component.ATTENTION, (inner, hidden_size), layers, shard_limit=head_count)
    yield from linear(
        f"{at}.o", Component.ATTENTION, (hidden_size, inner), layers, shard_limit=head_count, row_parallel=True
    )
