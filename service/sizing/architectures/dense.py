"""Families of dense decoders: attention and a feed-forward in every layer."""

from collections.abc import Callable, Iterator, Sequence

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention, norms
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    attention_groups,
    read_attention,
    read_frame,
    read_window,
)
from service.sizing.architectures.vision import qwen3_tower
from service.sizing.language_model import WeightTensor

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
SANDWICH_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def dense_decoder(
    config: ConfigReader,
    frame: Frame,
    attention: GroupedQueryAttention,
    *,
    layer_norms: Sequence[str] = PRE_NORMS,
    feed_forward_bias: bool = False,
    fused: bool = False,
    slides: Callable[[int], bool] = lambda _: False,
    window_tokens: int | None = None,
    others: Sequence[WeightTensor] = (),
) -> Architecture:
    """Every layer alike, apart from the window of its attention."""
    feed_forward = FeedForward(
        frame.hidden_size, config.count("intermediate_size"), bias=feed_forward_bias, fused=fused
    )

    def tensors() -> Iterator[WeightTensor]:
        yield from frame.tensors()
        yield from attention.tensors(frame.at("self_attn"), frame.layers)
        yield from feed_forward.tensors(frame.at("mlp"), frame.layers)
        for name in layer_norms:
            yield from norms(frame.prefix + ".layers.{layer}", (name,), frame.hidden_size, frame.layers)
        yield from others

    return Architecture(
        layer_count=frame.layer_count,
        hidden_size=frame.hidden_size,
        vocabulary_size=frame.vocabulary_size,
        max_context_tokens=frame.max_context_tokens,
        attention_head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        tied_embedding=frame.tied,
        tensors=tuple(tensors()),
        layer_groups=attention_groups(config, attention, frame, slides=slides, window_tokens=window_tokens),
    )


def llama(config: ConfigReader) -> Architecture:
    """Llama 2, 3 and their descendants, without a window whatever the file says of one."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, bias=bias, output_bias=bias),
        feed_forward_bias=config.flag("mlp_bias", default=False),
    )


def mistral(config: ConfigReader) -> Architecture:
    """Every layer slides over 4,096 tokens in version 0.1; later files say ``null``, which is no window."""
    frame = read_frame(config)
    window_tokens = read_window(config, default=None if config.states("sliding_window") else 4096)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size),
        slides=lambda _: True,
        window_tokens=window_tokens,
    )


def qwen_window(config: ConfigReader) -> tuple[int | None, Callable[[int], bool]]:
    """Qwen files carry a window that counts only where ``use_sliding_window`` says so, from a layer on."""
    if not config.flag("use_sliding_window", default=False):
        return None, lambda _: False
    first = config.count("max_window_layers", default=28, minimum=0)
    return read_window(config, default=4096), lambda layer: layer >= first


def qwen2(config: ConfigReader) -> Architecture:
    frame, (window_tokens, slides) = read_frame(config), qwen_window(config)
    attention = read_attention(config, frame.hidden_size, bias=True)
    return dense_decoder(config, frame, attention, slides=slides, window_tokens=window_tokens)


def qwen3(
    config: ConfigReader,
    *,
    prefix: str = "model",
    others: Sequence[WeightTensor] = (),
) -> Architecture:
    frame = read_frame(config, prefix=prefix)
    window_tokens, slides = qwen_window(config)
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, head_norms=True)
    return dense_decoder(config, frame, attention, slides=slides, window_tokens=window_tokens, others=others)


def qwen3_vl(config: ConfigReader) -> Architecture:
    """Qwen3 under ``text_config`` beside a vision tower."""
    return qwen3(
        config.section("text_config").taking(config, "tie_word_embeddings"),
        prefix="model.language_model",
        others=tuple(qwen3_tower(config.section("vision_config"))),
    )


def phi3(config: ConfigReader) -> Architecture:
    """Phi-3 and Phi-4: queries, keys and values in one matrix, gate and up in another."""
    frame = read_frame(config)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, fused=True),
        fused=True,
        slides=lambda _: True,
        window_tokens=read_window(config),
    )


def olmo2(config: ConfigReader) -> Architecture:
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, width_norms=True)
    return dense_decoder(config, frame, attention, layer_norms=POST_NORMS)


def olmo3(config: ConfigReader) -> Architecture:
    """OLMo-2 with windows of 4,096 tokens except in every fourth layer."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, width_norms=True)
    return dense_decoder(
        config,
        frame,
        attention,
        layer_norms=POST_NORMS,
        slides=lambda layer: (layer + 1) % 4 != 0,
        window_tokens=read_window(config, default=4096),
    )


def seed_oss(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    attention = read_attention(
        config,
        frame.hidden_size,
        bias=config.flag("attention_bias", default=True),
        output_bias=config.flag("attention_out_bias", default=False),
    )
    return dense_decoder(config, frame, attention, feed_forward_bias=config.flag("mlp_bias", default=False))


def cohere(config: ConfigReader) -> Architecture:
    """Command-R: attention and feed-forward side by side after one norm; the head is the embedding."""
    if config.flag("use_qk_norm", default=False):
        raise config.refuse("use_qk_norm", "is true, which is not modelled for this family")
    frame, bias = read_frame(config, tied_by_default=True), config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    return dense_decoder(config, frame, attention, layer_norms=("input_layernorm",))


def cohere2(config: ConfigReader) -> Architecture:
    """Command-R7B: as Command-R, with windows except in every fourth layer."""
    frame, bias = read_frame(config, tied_by_default=True), config.flag("attention_bias", default=False)
    period = config.count("sliding_window_pattern", "_sliding_window_pattern", default=4)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, bias=bias, output_bias=bias),
        layer_norms=("input_layernorm",),
        slides=lambda layer: (layer + 1) % period != 0,
        window_tokens=read_window(config, default=4096),
    )
