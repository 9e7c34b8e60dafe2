"""Dense decoders that differ from Llama in a name, a norm or a bias."""

from collections.abc import Callable
from dataclasses import replace

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    read_attention,
    read_frame,
    read_head_counts,
    read_head_width,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS, dense_decoder
from service.sizing.architectures.older import older_decoder

GLM4_NORMS = (*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
GEMMA_HEAD_WIDTH = 256


def tied_llama(config: ConfigReader) -> Architecture:
    """SmolLM3 and ERNIE 4.5: the head is the embedding unless the file says otherwise."""
    frame = read_frame(config, tied_by_default=True)
    bias = config.flag("attention_bias", "use_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    return dense_decoder(config, frame, attention, feed_forward_bias=config.flag("mlp_bias", "use_bias", default=False))


def gemma(config: ConfigReader) -> Architecture:
    """The first Gemma: heads of 256, no window, the head tied."""
    frame = read_frame(config, tied_by_default=True)
    head_count, kv_head_count = read_head_counts(config)
    width = read_head_width(config, frame.hidden_size, head_count, default=GEMMA_HEAD_WIDTH)
    bias = config.flag("attention_bias", default=False)
    attention = GroupedQueryAttention(
        frame.hidden_size, head_count, kv_head_count, width, width, bias=bias, output_bias=bias
    )
    return dense_decoder(config, frame, attention)


def glm(config: ConfigReader) -> Architecture:
    """GLM-4 9B: gate and up in one matrix, biases on queries, keys and values."""
    frame = read_frame(config)
    attention = read_attention(config, frame.hidden_size, bias=config.flag("attention_bias", default=True))
    return dense_decoder(config, frame, attention, fused=True)


def glm4(config: ConfigReader) -> Architecture:
    """GLM-4-0414: as GLM, with norms after both halves too."""
    frame = read_frame(config)
    attention = read_attention(config, frame.hidden_size, bias=config.flag("attention_bias", default=False))
    return dense_decoder(config, frame, attention, layer_norms=GLM4_NORMS, fused=True)


def chatglm(config: ConfigReader) -> Architecture:
    """ChatGLM2, 3 and GLM-4 under their first names: KV heads are groups, the vocabulary is the padded one."""
    frame = replace(
        read_frame(config, prefix="transformer.encoder"),
        embedding="embedding.word_embeddings",
        final_norm="final_layernorm",
        head="transformer.output_layer",
    )
    bias = config.flag("add_qkv_bias", default=False)
    if config.flag("add_bias_linear", default=False):
        raise config.refuse("add_bias_linear", "is true, which is not modelled for this family")
    head_count, kv_head_count = read_head_counts(config)
    if not config.flag("multi_query_attention", default=False):
        kv_head_count = head_count
    width = read_head_width(config, frame.hidden_size, head_count)
    attention = GroupedQueryAttention(
        frame.hidden_size,
        head_count,
        kv_head_count,
        width,
        width,
        bias=bias,
        fused=True,
        fused_name="query_key_value",
        output_name="dense",
    )
    feed_forward = FeedForward(
        frame.hidden_size,
        config.count("ffn_hidden_size"),
        fused=True,
        up_names=("dense_h_to_4h",),
        down_name="dense_4h_to_h",
    )
    return older_decoder(
        config,
        frame,
        attention,
        feed_forward,
        layer_norms=PRE_NORMS,
        attention_at="self_attention",
        norm_bias=not config.flag("rmsnorm", default=True),
    )


def internlm2(config: ConfigReader) -> Architecture:
    """Queries, keys and values in one matrix, the feed-forward under the names of the first Llama."""
    frame = replace(read_frame(config), embedding="tok_embeddings", head="output")
    bias = config.flag("bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, fused=True)
    return older_decoder(
        config,
        frame,
        replace(attention, fused_name="wqkv", output_name="wo"),
        FeedForward(frame.hidden_size, config.count("intermediate_size"), up_names=("w1", "w3"), down_name="w2"),
        layer_norms=("attention_norm", "ffn_norm"),
        attention_at="attention",
        feed_forward_at="feed_forward",
        norm_bias=False,
    )


def internlm3(config: ConfigReader) -> Architecture:
    frame, bias = read_frame(config), config.flag("bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=config.flag("qkv_bias", default=False), output_bias=bias)
    return dense_decoder(config, frame, attention, feed_forward_bias=bias)


def baichuan(config: ConfigReader) -> Architecture:
    """Queries, keys and values in one matrix, as many KV heads as queries."""
    frame = read_frame(config)
    attention = replace(read_attention(config, frame.hidden_size, fused=True), fused_name="W_pack")
    return dense_decoder(config, frame, attention)


def arcee(config: ConfigReader) -> Architecture:
    """Squared ReLU without a gate."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    feed_forward = FeedForward(
        frame.hidden_size,
        config.count("intermediate_size"),
        gated=False,
        bias=config.flag("mlp_bias", default=False),
    )
    return older_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, bias=bias, output_bias=bias),
        feed_forward,
        layer_norms=PRE_NORMS,
        norm_bias=False,
    )


def hunyuan_v1_dense(config: ConfigReader) -> Architecture:
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    attention = read_attention(
        config,
        frame.hidden_size,
        bias=bias,
        output_bias=bias,
        head_norms=config.flag("use_qk_norm", default=True),
    )
    return dense_decoder(config, frame, replace(attention, query_norm="query_layernorm", key_norm="key_layernorm"))


def exaone4(config: ConfigReader) -> Architecture:
    """Norms after both halves; the larger model slides in three layers of four, the smaller in none."""
    frame = read_frame(config)
    window_tokens = read_window(config, default=None if config.states("sliding_window") else 4096)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, head_norms=True),
        layer_norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        slides=exaone_slides(config),
        window_tokens=window_tokens,
    )


def exaone_slides(config: ConfigReader) -> Callable[[int], bool]:
    """The pattern is a period or a word such as "LLLG", L for a window."""
    if config.holds_text("sliding_window_pattern"):
        word = config.text("sliding_window_pattern")
        if not word or set(word) - set("LG"):
            raise config.refuse("sliding_window_pattern", "must be a number, or a text of L (window) and G (global)")
        return lambda layer: word[layer % len(word)] == "L"
    period = config.count("sliding_window_pattern", default=4)
    return lambda layer: (layer + 1) % period != 0


def ministral3(config: ConfigReader) -> Architecture:
    """Mistral with a window only where the file names one."""
    frame = read_frame(config)
    return dense_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size),
        slides=lambda _: True,
        window_tokens=read_window(config),
    )
