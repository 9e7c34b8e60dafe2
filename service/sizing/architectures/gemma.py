"""Gemma 2 and 3: windows in most layers, norms around both halves of a layer, the head tied."""

from collections.abc import Iterator

from service.sizing.architectures.building_blocks import GroupedQueryAttention
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    read_frame,
    read_head_counts,
    read_head_width,
    read_window,
)
from service.sizing.architectures.dense import SANDWICH_NORMS, dense_decoder
from service.sizing.architectures.vision import gemma_projector, siglip_tower
from service.sizing.language_model import WeightTensor

# Published Gemma 3 files leave out what their configuration class defaults to.
GEMMA3_HEADS, GEMMA3_KV_HEADS, GEMMA_HEAD_WIDTH = 8, 4, 256
GEMMA3_VOCABULARY, GEMMA3_PATTERN = 262_208, 6


def gemma2(config: ConfigReader) -> Architecture:
    """Even layers slide."""
    frame = read_frame(config, tied_by_default=True)
    head_count, kv_head_count = read_head_counts(config)
    width = read_head_width(config, frame.hidden_size, head_count, default=GEMMA_HEAD_WIDTH)
    bias = config.flag("attention_bias", default=False)
    return dense_decoder(
        config,
        frame,
        GroupedQueryAttention(frame.hidden_size, head_count, kv_head_count, width, width, bias=bias, output_bias=bias),
        layer_norms=SANDWICH_NORMS,
        slides=lambda layer: layer % 2 == 0,
        window_tokens=read_window(config, default=4096),
    )


def gemma3_text(
    config: ConfigReader,
    *,
    prefix: str = "model",
    others: tuple[WeightTensor, ...] = (),
) -> Architecture:
    """Every sixth layer is global."""
    frame = read_frame(config, tied_by_default=True, prefix=prefix, default_vocabulary_size=GEMMA3_VOCABULARY)
    head_count, kv_head_count = read_head_counts(config, default=GEMMA3_HEADS, kv_default=GEMMA3_KV_HEADS)
    width = read_head_width(config, frame.hidden_size, head_count, default=GEMMA_HEAD_WIDTH)
    bias = config.flag("attention_bias", default=False)
    period = config.count("sliding_window_pattern", "_sliding_window_pattern", default=GEMMA3_PATTERN)
    return dense_decoder(
        config,
        frame,
        GroupedQueryAttention(
            frame.hidden_size,
            head_count,
            kv_head_count,
            width,
            width,
            bias=bias,
            output_bias=bias,
            query_norm_width=width,
            key_norm_width=width,
        ),
        layer_norms=SANDWICH_NORMS,
        slides=lambda layer: (layer + 1) % period != 0,
        window_tokens=read_window(config, default=4096),
        others=others,
    )


def gemma3(config: ConfigReader) -> Architecture:
    """The decoder under ``text_config``, with the vision tower where the file has one."""
    text = config.section("text_config").taking(config, "tie_word_embeddings")

    def vision() -> Iterator[WeightTensor]:
        tower = config.optional_section("vision_config")
        if tower is not None:
            yield from siglip_tower(tower)
            yield from gemma_projector(tower, text.count("hidden_size"))

    return gemma3_text(
        text,
        prefix="language_model.model",
        others=tuple(vision()),
    )
