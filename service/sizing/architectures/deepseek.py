"""DeepSeek V2 to V3.2, R1, Kimi-K2 and GLM-5: latent attention, shared and routed experts after a few dense layers."""

from dataclasses import replace

from service.sizing.architectures.building_blocks import LatentAttention, Layers, RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layer_element_count,
    multi_token_prediction,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import ExpertLayers
from service.sizing.architectures.layer_lists import layers_by_word, layers_with_experts


def read_latent_attention(config: ConfigReader, hidden_size: int) -> LatentAttention:
    query_latent_width = config.optional_count("q_lora_rank")
    has_index = config.has("index_head_dim")
    if has_index and query_latent_width is None:
        raise config.refuse("index_head_dim", "needs a q_lora_rank, out of which the index queries are made")
    return LatentAttention(
        hidden_size,
        config.count("num_attention_heads", maximum=MAXIMUM_HEADS),
        query_latent_width,
        config.count("kv_lora_rank"),
        config.count("qk_nope_head_dim"),
        config.count("qk_rope_head_dim"),
        config.count("v_head_dim"),
        bias=config.flag("attention_bias", default=False),
        index_head_count=config.count("index_n_heads", maximum=MAXIMUM_HEADS) if has_index else 0,
        index_key_width=config.count("index_head_dim") if has_index else 0,
        index_top_k_tokens=config.count("index_topk") if has_index else None,
    )


def _expert_layers(config: ConfigReader, frame: Frame, *, has_router_bias: bool, dense_count: int) -> ExpertLayers:
    expert_count, top = read_expert_counts(config, ("n_routed_experts",), ("num_experts_per_tok",))
    width = config.count("moe_intermediate_size")
    first = config.count("first_k_dense_replace", default=dense_count, minimum=0)
    step = config.count("moe_layer_freq", default=1)
    layers = tuple(layer for layer in frame.layers if layer >= first and layer % step == 0)
    layers = layers_with_experts(config, frame.layer_count, layers)
    return ExpertLayers(
        RoutedExperts(frame.hidden_size, width, expert_count, top),
        layers,
        dense_width=config.count("intermediate_size"),
        shared_width=(config.optional_count("n_shared_experts", minimum=0) or 0) * width,
        has_router_bias=has_router_bias,
    )


def _decoder(config: ConfigReader, *, has_router_bias: bool, dense_count: int = 0) -> Architecture:
    frame = read_frame(config)
    attention = read_latent_attention(config, frame.hidden_size)
    expert_layers = _expert_layers(config, frame, has_router_bias=has_router_bias, dense_count=dense_count)
    indexed = _layers_with_index(config, frame) if attention.index_key_width else frame.layers
    sharing = tuple(layer for layer in frame.layers if layer not in set(indexed))
    unindexed = replace(attention, index_head_count=0, index_key_width=0)
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("self_attn"), indexed),
        *(unindexed.tensors(frame.at("self_attn"), sharing) if sharing else ()),
        *expert_layers.tensors(frame),
        *norms(frame.prefix + ".layers.{layer}", PRE_NORMS, frame.hidden_size, frame.layers),
    )
    group = attention.layer_group(indexed)
    return Architecture(
        layer_count=frame.layer_count,
        hidden_size=frame.hidden_size,
        vocabulary_size=frame.vocabulary_size,
        max_context_tokens=frame.max_context_tokens,
        attention_head_count=attention.head_count,
        kv_head_count=attention.head_count,
        tied_embedding=frame.tied,
        tensors=tensors,
        layer_groups=(group, *((unindexed.layer_group(sharing),) if sharing else ())),
        expert_count=expert_layers.experts.expert_count,
        experts_per_token=expert_layers.experts.experts_per_token,
        router_bias_count=expert_layers.router_bias_count,
        mtp=multi_token_prediction(
            config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16),
            decoder_layer_count=layer_element_count(tensors, frame.layer_count - 1),
            hidden_size=frame.hidden_size,
            kv_elements_per_token=group.kv_elements_per_token,
        ),
    )


def deepseek_v2(config: ConfigReader) -> Architecture:
    """Its router has no correction vector."""
    return _decoder(config, has_router_bias=False)


def _layers_with_index(config: ConfigReader, frame: Frame) -> Layers:
    """All of them, or those that do not share the choice of an earlier one and so keep no key of their own."""
    if config.has("indexer_types"):
        return layers_by_word(config, "indexer_types", ("full", "shared"), frame.layer_count)["full"]
    if config.has("index_topk_pattern"):
        pattern = config.text("index_topk_pattern")
        if len(pattern) != frame.layer_count or set(pattern) - set("FS"):
            raise config.refuse("index_topk_pattern", f"must hold F or S for each of {frame.layer_count} layers")
        return tuple(layer for layer in frame.layers if pattern[layer] == "F")
    step = config.count("index_topk_freq", default=1)
    offset = config.count("index_skip_topk_offset", default=2, minimum=0)
    return tuple(layer for layer in frame.layers if max(layer - offset + 1, 0) % step == 0)


def glm4_moe_lite(config: ConfigReader) -> Architecture:
    """GLM-4.7-Flash: DeepSeek-V3's layers, the first of them dense."""
    return _decoder(config, has_router_bias=True, dense_count=1)


def deepseek_v3(config: ConfigReader) -> Architecture:
    """DeepSeek V3 and R1; Kimi-K2 has the same layers under its own name."""
    return _decoder(config, has_router_bias=True)


def deepseek_v32(config: ConfigReader) -> Architecture:
    """DeepSeek V3.2 and GLM-5: a light index chooses which tokens attention reads."""
    if not config.has("index_head_dim"):
        raise config.refuse("index_head_dim", "is missing, and the family is one with an index")
    return _decoder(config, has_router_bias=True)
