"""MiniMax-Text-01 and M1: lightning attention in seven layers of eight, experts in all."""

from service.sizing.architectures.building_blocks import Layers, RoutedExperts, norms
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    read_attention,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.layer_lists import layers_by_word
from service.sizing.architectures.linear_attention import LightningAttention
from service.sizing.language_model import LayerKind

FULL, LINEAR = "full_attention", "linear_attention"


def minimax_text(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    full, linear_layers = _layers(config, frame)
    attention = read_attention(config, frame.hidden_size)
    if config.has("shared_intermediate_size") and config.count("shared_intermediate_size", minimum=0):
        raise config.refuse("shared_intermediate_size", "is not 0: a shared MLP is not modelled for this family")
    lightning = LightningAttention(frame.hidden_size, attention.head_count, attention.key_width)
    counts = read_expert_counts(config)
    experts = RoutedExperts(
        frame.hidden_size,
        config.count("intermediate_size"),
        *counts,
        up_matrices=("w1", "w3"),
        down_matrix="w2",
    )
    at = frame.at("self_attn")
    tensors = (
        *frame.tensors(),
        *(attention.tensors(at, full) if full else ()),
        *(lightning.tensors(at, linear_layers) if linear_layers else ()),
        *experts.tensors(frame.at("block_sparse_moe"), frame.layers),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (lightning.layer_group(linear_layers), attention.layer_group(LayerKind.FULL, full)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
    )


def _layers(config: ConfigReader, frame: Frame) -> tuple[Layers, Layers]:
    """Those of full and of linear attention: by their types, or by a list in which 1 is full."""
    if config.has("attn_type_list"):
        marks = config.counts("attn_type_list", maximum=1, length=frame.layer_count) or ()
        return (
            tuple(layer for layer in frame.layers if marks[layer]),
            tuple(layer for layer in frame.layers if not marks[layer]),
        )
    where = layers_by_word(config, "layer_types", (FULL, LINEAR), frame.layer_count)
    return where[FULL], where[LINEAR]
