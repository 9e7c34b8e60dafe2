"""Dense decoders of the first years: norms with biases, feed-forwards of two matrices, fused projections."""

from collections.abc import Sequence
from dataclasses import replace

from service.sizing.architectures.building_blocks import FeedForward, GroupedQueryAttention, norms
from service.sizing.architectures.config_reader import MAXIMUM_TOKENS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    attention_groups,
    read_frame,
    read_head_counts,
    read_head_width,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.field_names import CONTEXT_NAMES
from service.sizing.language_model import Component, WeightTensor

MPT_EXPANSION = 4


def older_decoder(
    config: ConfigReader,
    frame: Frame,
    attention: GroupedQueryAttention,
    feed_forward: FeedForward,
    *,
    layer_norms: Sequence[str],
    attention_at: str = "self_attn",
    feed_forward_at: str = "mlp",
    norm_bias: bool = True,
    window_tokens: int | None = None,
    others: Sequence[WeightTensor] = (),
) -> Architecture:
    """Every layer alike."""
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at(attention_at), frame.layers),
        *feed_forward.tensors(frame.at(feed_forward_at).rstrip("."), frame.layers),
        *norms(frame.at(""), layer_norms, frame.hidden_size, frame.layers, bias=norm_bias),
        *others,
    )
    groups = attention_groups(config, attention, frame, slides=lambda _: True, window_tokens=window_tokens)
    return frame.architecture(tensors, groups, head_count=attention.head_count, kv_head_count=attention.kv_head_count)


def _frame(
    config: ConfigReader, *, embedding: str, final_norm: str, tied: bool, prefix: str = "transformer", stack: str = "h"
) -> Frame:
    frame = read_frame(config, tied_by_default=tied, prefix=prefix)
    return replace(frame, embedding=embedding, final_norm=final_norm, final_norm_bias=True, stack=stack)


def _attention(
    config: ConfigReader, frame: Frame, *, kv_head_count: int | None = None, bias: bool, output_bias: bool, output: str
) -> GroupedQueryAttention:
    head_count, stated = read_head_counts(config)
    width = read_head_width(config, frame.hidden_size, head_count)
    return GroupedQueryAttention(
        frame.hidden_size,
        head_count,
        kv_head_count or stated,
        width,
        width,
        bias=bias,
        output_bias=output_bias,
        output_name=output,
    )


def _two_matrices(frame: Frame, width: int, up: str, down: str, *, bias: bool = True) -> FeedForward:
    return FeedForward(frame.hidden_size, width, gated=False, bias=bias, up_names=(up,), down_name=down)


def _learned_positions(config: ConfigReader, module: str, width: int, *, spare: int = 0) -> WeightTensor:
    rows = config.count(*CONTEXT_NAMES, maximum=MAXIMUM_TOKENS) + spare
    return WeightTensor(module, Component.EMBEDDING, (rows, width))


def falcon(config: ConfigReader) -> Architecture:
    """The newer decoder has groups of heads and a norm for each half; the older one may share a single KV head."""
    frame = _frame(config, embedding="word_embeddings", final_norm="ln_f", tied=True)
    newer, bias = config.flag("new_decoder_architecture", default=False), config.flag("bias", default=False)
    parallel = newer or config.flag("parallel_attn", default=True)
    single = not newer and config.flag("multi_query", default=True)
    head_count, stated = read_head_counts(config)
    kv_head_count = 1 if single else stated if newer else head_count
    attention = replace(
        _attention(config, frame, kv_head_count=kv_head_count, bias=bias, output_bias=bias, output="dense"),
        fused=True,
        fused_name="query_key_value",
    )
    two_norms = newer and config.count("num_ln_in_parallel_attn", default=2, maximum=2) == 2
    width = config.count("ffn_hidden_size", default=4 * frame.hidden_size)
    return older_decoder(
        config,
        frame,
        attention,
        _two_matrices(frame, width, "dense_h_to_4h", "dense_4h_to_h", bias=bias),
        layer_norms=("ln_attn", "ln_mlp") if two_norms else PRE_NORMS[:1] if parallel else PRE_NORMS,
        attention_at="self_attention",
    )


def gpt_neox(config: ConfigReader) -> Architecture:
    frame = _frame(
        config, embedding="embed_in", final_norm="final_layer_norm", tied=False, prefix="gpt_neox", stack="layers"
    )
    bias = config.flag("attention_bias", default=True)
    attention = _attention(config, frame, bias=bias, output_bias=bias, output="dense")
    return older_decoder(
        config,
        replace(frame, head="embed_out"),
        replace(attention, fused=True, fused_name="query_key_value"),
        _two_matrices(frame, config.count("intermediate_size"), "dense_h_to_4h", "dense_4h_to_h"),
        layer_norms=PRE_NORMS,
        attention_at="attention",
    )


def bloom(config: ConfigReader) -> Architecture:
    frame = _frame(config, embedding="word_embeddings", final_norm="ln_f", tied=True)
    attention = _attention(config, frame, bias=True, output_bias=True, output="dense")
    return older_decoder(
        config,
        frame,
        replace(attention, fused=True, fused_name="query_key_value"),
        _two_matrices(frame, 4 * frame.hidden_size, "dense_h_to_4h", "dense_4h_to_h"),
        layer_norms=PRE_NORMS,
        attention_at="self_attention",
        others=tuple(norms("transformer", ("word_embeddings_layernorm",), frame.hidden_size, (), bias=True)),
    )


def gptj(config: ConfigReader) -> Architecture:
    """One norm a layer, and a bias on the head."""
    frame = replace(_frame(config, embedding="wte", final_norm="ln_f", tied=False), head_bias=True)
    width = config.count("n_inner", default=4 * frame.hidden_size)
    return older_decoder(
        config,
        frame,
        _attention(config, frame, bias=False, output_bias=False, output="out_proj"),
        _two_matrices(frame, width, "fc_in", "fc_out"),
        layer_norms=("ln_1",),
        attention_at="attn",
    )


def gpt2(config: ConfigReader, *, kv_head_count: int | None = None) -> Architecture:
    """Positions are learned, and lie in a table of their own."""
    frame = _frame(config, embedding="wte", final_norm="ln_f", tied=True)
    attention = _attention(config, frame, kv_head_count=kv_head_count, bias=True, output_bias=True, output="c_proj")
    return older_decoder(
        config,
        frame,
        replace(attention, fused=True, fused_name="c_attn"),
        _two_matrices(frame, config.count("n_inner", default=4 * frame.hidden_size), "c_fc", "c_proj"),
        layer_norms=("ln_1", "ln_2"),
        attention_at="attn",
        others=(_learned_positions(config, "transformer.wpe", frame.hidden_size),),
    )


def gpt_bigcode(config: ConfigReader) -> Architecture:
    """GPT-2 with one KV head, unless the file says otherwise (StarCoder, SantaCoder)."""
    return gpt2(config, kv_head_count=1 if config.flag("multi_query", default=True) else None)


def opt(config: ConfigReader) -> Architecture:
    frame = _frame(
        config,
        embedding="embed_tokens",
        final_norm="final_layer_norm",
        tied=True,
        prefix="model.decoder",
        stack="layers",
    )
    if config.count("word_embed_proj_dim", default=frame.hidden_size) != frame.hidden_size:
        raise config.refuse("word_embed_proj_dim", "differs from hidden_size: embeddings of another width are not read")
    if not config.flag("do_layer_norm_before", default=True):
        raise config.refuse("do_layer_norm_before", "is false: norms after each half are not modelled")
    bias = config.flag("enable_bias", default=True)
    return older_decoder(
        config,
        frame,
        _attention(config, frame, bias=bias, output_bias=bias, output="out_proj"),
        _two_matrices(frame, config.count("ffn_dim"), "fc1", "fc2", bias=bias),
        layer_norms=("self_attn_layer_norm", "final_layer_norm"),
        feed_forward_at="",
        others=(_learned_positions(config, "model.decoder.embed_positions", frame.hidden_size, spare=2),),
    )


def phi(config: ConfigReader) -> Architecture:
    """Phi-1 and 2: both halves after one norm, and a bias on the head."""
    if config.flag("qk_layernorm", default=False):
        raise config.refuse("qk_layernorm", "is true, which is not modelled for this family")
    frame = _frame(
        config, embedding="embed_tokens", final_norm="final_layernorm", tied=False, prefix="model", stack="layers"
    )
    return older_decoder(
        config,
        replace(frame, head_bias=True),
        _attention(config, frame, bias=True, output_bias=True, output="dense"),
        _two_matrices(frame, config.count("intermediate_size"), "fc1", "fc2"),
        layer_norms=PRE_NORMS[:1],
    )


def starcoder2(config: ConfigReader) -> Architecture:
    frame = _frame(config, embedding="embed_tokens", final_norm="norm", tied=True, prefix="model", stack="layers")
    bias = config.flag("use_bias", default=True)
    return older_decoder(
        config,
        frame,
        _attention(config, frame, bias=bias, output_bias=bias, output="o_proj"),
        _two_matrices(frame, config.count("intermediate_size"), "c_fc", "c_proj", bias=bias),
        layer_norms=PRE_NORMS,
        window_tokens=read_window(config),
    )


def stablelm(config: ConfigReader) -> Architecture:
    """Gated like Llama, with norms that have biases; attention and feed-forward may stand side by side."""
    if config.flag("qk_layernorm", default=False):
        raise config.refuse("qk_layernorm", "is true, which is not modelled for this family")
    frame = _frame(config, embedding="embed_tokens", final_norm="norm", tied=False, prefix="model", stack="layers")
    bias = config.flag("use_qkv_bias", default=False)
    return older_decoder(
        config,
        frame,
        _attention(config, frame, bias=bias, output_bias=False, output="o_proj"),
        FeedForward(frame.hidden_size, config.count("intermediate_size")),
        layer_norms=PRE_NORMS[:1] if config.flag("use_parallel_residual", default=False) else PRE_NORMS,
    )


def nemotron(config: ConfigReader) -> Architecture:
    """Nemotron-4 and Minitron: squared ReLU without a gate."""
    frame = _frame(config, embedding="embed_tokens", final_norm="norm", tied=False, prefix="model", stack="layers")
    bias, width = config.flag("attention_bias", default=False), config.count("intermediate_size")
    feed_forward = FeedForward(frame.hidden_size, width, gated=False, bias=config.flag("mlp_bias", default=False))
    return older_decoder(
        config,
        frame,
        _attention(config, frame, bias=bias, output_bias=bias, output="o_proj"),
        feed_forward,
        layer_norms=PRE_NORMS,
    )


def mpt(config: ConfigReader) -> Architecture:
    """Without biases, as every published file has it."""
    if not config.flag("no_bias", default=True):
        raise config.refuse("no_bias", "is false, which is not modelled for this family")
    frame = replace(
        _frame(config, embedding="wte", final_norm="norm_f", tied=True, stack="blocks"), final_norm_bias=False
    )
    head_count, _ = read_head_counts(config)
    section = config.optional_section("attn_config")
    kv_head_count = section.count("kv_n_heads", default=head_count, maximum=head_count) if section else head_count
    attention = _attention(config, frame, kv_head_count=kv_head_count, bias=False, output_bias=False, output="out_proj")
    width = config.count("expansion_ratio", default=MPT_EXPANSION) * frame.hidden_size
    return older_decoder(
        config,
        frame,
        replace(attention, fused=True, fused_name="Wqkv"),
        FeedForward(frame.hidden_size, width, gated=False),
        layer_norms=("norm_1", "norm_2"),
        attention_at="attn",
        feed_forward_at="ffn",
        norm_bias=False,
    )
