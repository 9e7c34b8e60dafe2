"""LFM2: short convolutions in most layers, attention in the rest, dense or with experts."""

from dataclasses import replace

from service.sizing.architectures.building_blocks import FeedForward, RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    read_attention,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.layer_lists import layers_by_word
from service.sizing.architectures.linear_attention import ShortConvolution
from service.sizing.language_model import LayerKind, WeightTensor

FULL, CONVOLUTION = "full_attention", "conv"


def lfm2(config: ConfigReader) -> Architecture:
    """The stated width of the feed-forward is two thirds used, and rounded up, unless the file says not."""
    frame = _frame(config)
    width = config.count("block_ff_dim", "intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", default=True):
        multiple = config.count("block_multiple_of", default=256)
        width = config.scaled("block_ffn_dim_multiplier", 2 * width // 3, default=1)
        width = -(-width // multiple) * multiple
    feed_forward = FeedForward(frame.hidden_size, width, up_names=("w1", "w3"), down_name="w2")
    return _decoder(config, frame, tuple(feed_forward.tensors(frame.at("feed_forward"), frame.layers)))


def lfm2_moe(config: ConfigReader) -> Architecture:
    """Experts after the first ``num_dense_layers``."""
    frame = _frame(config)
    at, counts = frame.at("feed_forward"), read_expert_counts(config)
    dense_count = config.count("num_dense_layers", default=2, minimum=0, maximum=MAXIMUM_LAYERS)
    dense, sparse = frame.layers[:dense_count], frame.layers[dense_count:]
    feed_forward = FeedForward(
        frame.hidden_size, config.count("intermediate_size"), up_names=("w1", "w3"), down_name="w2"
    )
    experts = RoutedExperts(
        frame.hidden_size, config.count("moe_intermediate_size"), *counts, up_matrices=("w1", "w3"), down_matrix="w2"
    )
    rest = (
        *(feed_forward.tensors(at, dense) if dense else ()),
        *(experts.tensors(at, sparse) if sparse else ()),
    )
    has_router_bias = config.flag("use_expert_bias", default=True)
    return replace(
        _decoder(config, frame, rest),
        expert_count=counts[0],
        experts_per_token=counts[1],
        router_bias_count=counts[0] * len(sparse) if has_router_bias else 0,
    )


def _frame(config: ConfigReader) -> Frame:
    return replace(read_frame(config, tied_by_default=True), final_norm="embedding_norm")


def _decoder(config: ConfigReader, frame: Frame, rest: tuple[WeightTensor, ...]) -> Architecture:
    if config.has("layer_types"):
        where = layers_by_word(config, "layer_types", (FULL, CONVOLUTION), frame.layer_count)
        full, convolving = where[FULL], where[CONVOLUTION]
    else:
        named = set(config.counts("full_attn_idxs", maximum=MAXIMUM_LAYERS) or frame.layers)
        full = tuple(layer for layer in frame.layers if layer in named)
        convolving = tuple(layer for layer in frame.layers if layer not in named)
    attention = replace(
        read_attention(config, frame.hidden_size, head_norms=True),
        output_name="out_proj",
        query_norm="q_layernorm",
        key_norm="k_layernorm",
    )
    convolution = ShortConvolution(
        frame.hidden_size,
        config.count("conv_L_cache", default=3, minimum=2, maximum=64),
        bias=config.flag("conv_bias", default=False),
    )
    tensors = (
        *frame.tensors(),
        *(attention.tensors(frame.at("self_attn"), full) if full else ()),
        *(convolution.tensors(frame.at("conv"), convolving) if convolving else ()),
        *rest,
        *norms(frame.at(""), ("operator_norm", "ffn_norm"), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (convolution.layer_group(convolving), attention.layer_group(LayerKind.FULL, full)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
    )
