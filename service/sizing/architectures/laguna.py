"""Laguna: as many query heads as each layer says, a gate for every head, windows in three layers of four."""

from dataclasses import replace

from service.sizing.architectures.building_blocks import GroupedQueryAttention, Layers, RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layers_by_type,
    read_attention,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import ExpertLayers
from service.sizing.architectures.layer_lists import layers_with_experts
from service.sizing.language_model import LayerGroup, LayerKind


def laguna(config: ConfigReader) -> Architecture:
    frame, counts = read_frame(config), read_expert_counts(config)
    by_heads = _attention_by_heads(config, frame)
    first = config.count("first_k_dense_replace", default=1, minimum=0)
    experts = ExpertLayers(
        RoutedExperts(frame.hidden_size, config.count("moe_intermediate_size"), *counts),
        layers_with_experts(config, frame.layer_count, frame.layers[first:]),
        dense_width=config.count("intermediate_size"),
        shared_width=config.count("shared_expert_intermediate_size", minimum=0),
        shared_name="shared_expert",
        router_bias_is_parameter=True,
    )
    tensors = (
        *frame.tensors(),
        *(each for attention, layers in by_heads for each in attention.tensors(frame.at("self_attn"), layers)),
        *experts.tensors(frame),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    fewest = min((attention for attention, _ in by_heads), key=lambda attention: attention.head_count)
    return frame.architecture(
        tensors,
        _layer_groups(config, frame, by_heads),
        head_count=fewest.head_count,
        kv_head_count=fewest.kv_head_count,
        experts=counts,
    )


def _attention_by_heads(config: ConfigReader, frame: Frame) -> list[tuple[GroupedQueryAttention, Layers]]:
    bias = config.flag("attention_bias", default=False)
    usual = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, head_norms=True)
    name = "num_attention_heads_per_layer"
    heads = config.counts(name, minimum=1, maximum=MAXIMUM_HEADS, length=frame.layer_count)
    heads = heads or (usual.head_count,) * frame.layer_count
    if any(each % usual.kv_head_count for each in heads):
        raise config.refuse(name, f"must hold multiples of the {usual.kv_head_count} KV heads")
    gates_elements = config.holds_text("gating") and config.text("gating") != "per-head"
    is_gated = True if config.holds_text("gating") else config.flag("gating", default=True)

    def attention(head_count: int) -> GroupedQueryAttention:
        gate_width = head_count * (usual.value_width if gates_elements else 1) if is_gated else 0
        return replace(usual, head_count=head_count, gate_width=gate_width)

    return [
        (attention(each), tuple(layer for layer in frame.layers if heads[layer] == each)) for each in sorted(set(heads))
    ]


def _layer_groups(
    config: ConfigReader, frame: Frame, by_heads: list[tuple[GroupedQueryAttention, Layers]]
) -> list[LayerGroup]:
    kinds = layers_by_type(config, frame.layer_count, lambda _: False)
    window_tokens = read_window(config, default=512)
    return [
        attention.layer_group(
            kind,
            tuple(layer for layer in layers if layer in set(of_kind)),
            None if kind is LayerKind.FULL else window_tokens,
        )
        for attention, layers in by_heads
        for kind, of_kind in kinds.items()
    ]
