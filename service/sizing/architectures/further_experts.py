"""Further families with routed experts in a plain decoder."""

from dataclasses import replace

from service.sizing.architectures.building_blocks import (
    FeedForward,
    GroupedQueryAttention,
    RoutedExperts,
    norms,
)
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    attention_groups,
    read_attention,
    read_expert_counts,
    read_frame,
    read_head_counts,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.dense_variants import exaone_slides
from service.sizing.architectures.experts import ExpertLayers, expert_decoder, qwen_expert_layers
from service.sizing.architectures.layer_lists import layers_with_experts
from service.sizing.architectures.vision import qwen3_tower
from service.sizing.language_model import Component, LayerGroup, LayerKind

SANDWICH = ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")


def granitemoe(config: ConfigReader) -> Architecture:
    """Granite 3 MoE: a layer's experts lie in two tensors; the shared variant has one MLP more beside them."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    counts = read_expert_counts(config)
    experts = RoutedExperts(
        frame.hidden_size,
        config.count("intermediate_size"),
        *counts,
        router="router.layer",
    )
    shared_width = config.count("shared_intermediate_size", default=0, minimum=0)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    shared = FeedForward(
        frame.hidden_size,
        shared_width,
        fused=True,
        component=Component.SHARED_EXPERTS,
        up_names=("input_linear",),
        down_name="output_linear",
    )
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("self_attn"), frame.layers),
        *experts.tensors(frame.at("block_sparse_moe"), frame.layers),
        *(shared.tensors(frame.at("shared_mlp"), frame.layers) if shared_width else ()),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        attention_groups(config, attention, frame),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
    )


def olmoe(config: ConfigReader) -> Architecture:
    """Norms over all heads together; the experts have the width of the feed-forward."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    experts = RoutedExperts(frame.hidden_size, config.count("intermediate_size"), *read_expert_counts(config))
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, width_norms=True)
    return expert_decoder(config, frame, attention, ExpertLayers(experts, frame.layers))


def dots1(
    config: ConfigReader, *, head_norms: bool = True, dense_count: int = 0, groups: tuple[LayerGroup, ...] | None = None
) -> Architecture:
    """A few dense layers, then routed experts with a correction beside shared ones."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    width = config.count("moe_intermediate_size")
    layers = frame.layers[config.count("first_k_dense_replace", default=dense_count, minimum=0) :]
    layers = layers_with_experts(config, frame.layer_count, layers)
    shared_count = config.optional_count("n_shared_experts", "num_shared_experts", minimum=0) or 0
    return expert_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, head_norms=head_norms),
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, *read_expert_counts(config)),
            layers,
            dense_width=config.count("intermediate_size") if len(layers) < frame.layer_count else 0,
            shared_width=shared_count * width,
            has_router_bias=True,
        ),
        groups=groups,
    )


def solar_open(config: ConfigReader) -> Architecture:
    return dots1(config, head_norms=False)


def hy_v3(config: ConfigReader) -> Architecture:
    """Hunyuan 3: the first layer is dense."""
    return dots1(config, dense_count=1)


def exaone_moe(config: ConfigReader) -> Architecture:
    """K-EXAONE: windows in three layers of four, the first layer dense."""
    frame = read_frame(config)
    marks = config.flags("is_moe_layer", length=frame.layer_count)
    if marks is not None and marks != (False, *[True] * (frame.layer_count - 1)):
        raise config.refuse("is_moe_layer", "marks other layers than all but the first, which is not modelled")
    attention = read_attention(config, frame.hidden_size)
    windows = attention_groups(
        config,
        attention,
        frame,
        slides=exaone_slides(config),
        window_tokens=read_window(config, default=None if config.states("sliding_window") else 4096),
    )
    return dots1(config, dense_count=1, groups=windows)


def phimoe(config: ConfigReader) -> Architecture:
    """Phi-3.5-MoE: norms with biases, and one on the head where the file says so."""
    frame = replace(read_frame(config), final_norm_bias=True, head_bias=config.flag("lm_head_bias", default=False))
    bias, counts = config.flag("attention_bias", default=False), read_expert_counts(config)
    width = config.count("intermediate_size")
    experts = RoutedExperts(frame.hidden_size, width, *counts, up_matrices=("w1", "w3"), down_matrix="w2")
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("self_attn"), frame.layers),
        *experts.tensors(frame.at("block_sparse_moe"), frame.layers),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers, bias=True),
    )
    return frame.architecture(
        tensors,
        attention_groups(config, attention, frame, slides=lambda _: True, window_tokens=read_window(config)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
    )


def bailing_moe(config: ConfigReader) -> Architecture:
    """Ling and Ring: queries, keys and values in one matrix; the second version has norms on heads and a correction."""
    frame = replace(read_frame(config), embedding="word_embeddings")
    width, counts = config.count("moe_intermediate_size"), read_expert_counts(config)
    attention = read_attention(
        config,
        frame.hidden_size,
        bias=config.flag("use_qkv_bias", default=False),
        output_bias=config.flag("use_bias", default=False),
        head_norms=config.flag("use_qk_norm", default=False),
        fused=True,
    )
    attention = replace(
        attention,
        fused_name="query_key_value",
        output_name="dense",
        query_norm="query_layernorm",
        key_norm="key_layernorm",
    )
    first = config.count("first_k_dense_replace", default=0, minimum=0)
    shared_width = config.count("moe_shared_expert_intermediate_size", default=width)
    return expert_decoder(
        config,
        frame,
        attention,
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, *counts),
            frame.layers[first:],
            dense_width=config.count("intermediate_size") if first else 0,
            shared_width=(config.optional_count("num_shared_experts", minimum=0) or 0) * shared_width,
            has_router_bias=config.flag("moe_router_enable_expert_bias", default=False),
        ),
        attention_at="attention",
    )


def afmoe(config: ConfigReader) -> Architecture:
    """Trinity: a gate beside attention, norms around both halves, windows except in every fourth layer."""
    frame, bias = read_frame(config), config.flag("attention_bias", default=False)
    width, counts = config.count("moe_intermediate_size"), read_expert_counts(config)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, head_norms=True)
    attention = replace(attention, gate_width=attention.head_count * attention.value_width, gate_name="gate_proj")
    period = config.count("global_attn_every_n_layers", default=4)
    return expert_decoder(
        config,
        frame,
        attention,
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, *counts, router="router.gate"),
            frame.layers[config.count("num_dense_layers", default=1, minimum=0) :],
            dense_width=config.count("intermediate_size"),
            shared_width=config.count("num_shared_experts", default=0, minimum=0) * width,
            router_bias_is_parameter=True,
        ),
        layer_norms=SANDWICH,
        groups=attention_groups(
            config,
            attention,
            frame,
            slides=lambda layer: (layer + 1) % period != 0,
            window_tokens=read_window(config, default=1024),
        ),
    )


def dbrx(config: ConfigReader) -> Architecture:
    """Its sections name what other files name at the top; a layer's experts lie in three tensors."""
    frame = replace(
        read_frame(config, prefix="transformer"),
        embedding="wte",
        final_norm="norm_f",
        stack="blocks",
    )
    attention_section, experts_section = config.section("attn_config"), config.section("ffn_config")
    head_count, _ = read_head_counts(config)
    kv_head_count = attention_section.count("kv_n_heads", default=head_count, maximum=head_count)
    if frame.hidden_size % head_count or head_count % kv_head_count:
        raise attention_section.refuse("kv_n_heads", f"is {kv_head_count}, which does not divide {head_count} heads")
    width = frame.hidden_size // head_count
    attention = GroupedQueryAttention(
        frame.hidden_size,
        head_count,
        kv_head_count,
        width,
        width,
        fused=True,
        fused_name="Wqkv",
        output_name="out_proj",
    )
    counts = read_expert_counts(experts_section)
    experts = RoutedExperts(
        frame.hidden_size,
        experts_section.count("ffn_hidden_size"),
        *counts,
        router="router.layer",
        up_matrices=("w1", "v1"),
        down_matrix="w2",
    )
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("norm_attn_norm.attn"), frame.layers),
        *experts.tensors(frame.at("ffn"), frame.layers),
        *norms(frame.at("norm_attn_norm"), ("norm_1", "norm_2"), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (attention.layer_group(LayerKind.FULL, frame.layers),),
        head_count=head_count,
        kv_head_count=kv_head_count,
        experts=counts,
    )


def qwen3_vl_moe(config: ConfigReader) -> Architecture:
    """Qwen3 MoE under ``text_config`` beside a vision tower."""
    text = config.section("text_config").taking(config, "tie_word_embeddings")
    frame = read_frame(text, prefix="model.language_model")
    bias = text.flag("attention_bias", default=False)
    attention = read_attention(text, frame.hidden_size, bias=bias, output_bias=bias, head_norms=True)
    return expert_decoder(
        text,
        frame,
        attention,
        qwen_expert_layers(text, frame, shared=False),
        others=tuple(qwen3_tower(config.section("vision_config"))),
    )
