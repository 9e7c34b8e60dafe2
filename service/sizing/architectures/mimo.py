"""MiMo-V2: keys wider than values, windowed layers with KV heads of their own, experts after a dense layer."""

from service.sizing.architectures.building_blocks import GroupedQueryAttention, Layers, RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layers_by_type,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import ExpertLayers
from service.sizing.architectures.layer_lists import layers_with_experts
from service.sizing.language_model import LayerKind


def mimo_v2(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    sliding, full = _layers(config, frame)
    attention = _attention(config, frame, "", has_sinks=config.flag("add_full_attention_sink_bias", default=False))
    windowed = attention
    if sliding:
        has_sinks = config.flag("add_swa_attention_sink_bias", default=False)
        windowed = _attention(config, frame, "swa_", has_sinks=has_sinks)
    experts = _expert_layers(config, frame)
    counts = (experts.experts.expert_count, experts.experts.experts_per_token)
    at = frame.at("self_attn")
    tensors = (
        *frame.tensors(),
        *(attention.tensors(at, full) if full else ()),
        *(windowed.tensors(at, sliding) if sliding else ()),
        *experts.tensors(frame),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (
            attention.layer_group(LayerKind.FULL, full),
            windowed.layer_group(LayerKind.SLIDING, sliding, read_window(config, default=128)),
        ),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
        router_bias_count=experts.router_bias_count,
    )


def _layers(config: ConfigReader, frame: Frame) -> tuple[Layers, Layers]:
    """Those with a window and those without; 1 marks a window. Newer files name the types."""
    if config.has("layer_types"):
        kinds = layers_by_type(config, frame.layer_count, lambda _: False)
        return kinds.get(LayerKind.SLIDING, ()), kinds.get(LayerKind.FULL, ())
    pattern = config.counts("hybrid_layer_pattern", maximum=1, length=frame.layer_count)
    if pattern is None:
        raise config.refuse("hybrid_layer_pattern", "is missing, and nothing else says which layers have a window")
    return (
        tuple(layer for layer in frame.layers if pattern[layer]),
        tuple(layer for layer in frame.layers if not pattern[layer]),
    )


def _attention(config: ConfigReader, frame: Frame, kind: str, *, has_sinks: bool) -> GroupedQueryAttention:
    """``kind`` stands before the names of the windowed layers' fields; their KV heads are always their own."""
    head_count = config.count(f"{kind}num_attention_heads", "num_attention_heads", maximum=MAXIMUM_HEADS)
    kv_head_count = config.count(f"{kind}num_key_value_heads", maximum=MAXIMUM_HEADS)
    if head_count % kv_head_count:
        raise config.refuse(
            f"{kind}num_key_value_heads", f"is {kv_head_count}, which does not divide {head_count} heads"
        )
    key_width = config.count(f"{kind}head_dim", "head_dim")
    bias = config.flag("attention_bias", default=False)
    return GroupedQueryAttention(
        frame.hidden_size,
        head_count,
        kv_head_count,
        key_width,
        config.count(f"{kind}v_head_dim", "v_head_dim", default=key_width),
        bias=bias,
        has_sinks=has_sinks,
    )


def _expert_layers(config: ConfigReader, frame: Frame) -> ExpertLayers:
    pattern = config.counts("moe_layer_freq", maximum=1, length=frame.layer_count) or (1,) * frame.layer_count
    width = config.count("moe_intermediate_size")
    return ExpertLayers(
        RoutedExperts(frame.hidden_size, width, *read_expert_counts(config)),
        layers_with_experts(config, frame.layer_count, tuple(layer for layer in frame.layers if pattern[layer])),
        dense_width=config.count("intermediate_size"),
        shared_width=(config.optional_count("n_shared_experts", minimum=0) or 0) * width,
        has_router_bias=True,
    )
