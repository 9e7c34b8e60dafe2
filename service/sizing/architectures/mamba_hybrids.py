"""Mamba models and decoders that mix Mamba layers with attention."""

from dataclasses import replace
from typing import Final

from service.sizing.architectures.building_blocks import FeedForward, RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    STATE_PRECISIONS,
    Architecture,
    Frame,
    read_attention,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.layer_lists import layers_by_word
from service.sizing.architectures.state_space import Mamba1, Mamba2
from service.sizing.language_model import Component, LayerKind
from service.sizing.precision import Precision

MAMBA, ATTENTION = "mamba", "attention"
NEWER_WORDS: Final = {MAMBA: "linear_attention", ATTENTION: "full_attention"}
LAYER_WORDS: Final = (*NEWER_WORDS, *NEWER_WORDS.values())
MAXIMUM_KERNEL: Final = 64


def state_precision(config: ConfigReader) -> Precision | None:
    return config.choice(STATE_PRECISIONS, "mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="auto")


def _backbone(config: ConfigReader, *, tied: bool) -> Frame:
    frame = read_frame(config, tied_by_default=tied, prefix="backbone")
    return replace(frame, embedding="embeddings", final_norm="norm_f")


def mamba(config: ConfigReader, *, tied: bool = True) -> Architecture:
    """Mamba layers and nothing else; no layer keeps a cache."""
    frame = _backbone(config, tied=tied)
    inner = config.count("intermediate_size", default=config.count("expand", default=2) * frame.hidden_size)
    mixer = Mamba1(
        frame.hidden_size,
        inner,
        config.count("state_size", default=16),
        config.count("conv_kernel", default=4, maximum=MAXIMUM_KERNEL),
        _step_rank(config, "time_step_rank", frame.hidden_size),
        bias=config.flag("use_bias", default=False),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )
    tensors = (
        *frame.tensors(),
        *mixer.tensors(frame.at("mixer"), frame.layers),
        *norms(frame.at(""), ("norm",), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(frame.layers),),
        head_count=inner,
        kv_head_count=inner,
        recurrent_state_precision=state_precision(config),
    )


def _step_rank(config: ConfigReader, name: str, hidden_size: int) -> int:
    """ "auto" is a sixteenth of the hidden size."""
    if config.holds_text(name) and config.text(name) != "auto":
        raise config.refuse(name, "must be a number or auto")
    return -(-hidden_size // 16) if config.holds_text(name) or not config.has(name) else config.count(name)


def mamba2(config: ConfigReader) -> Architecture:
    frame = _backbone(config, tied=False)
    mixer = Mamba2(
        frame.hidden_size,
        config.count("num_heads", default=128, maximum=MAXIMUM_HEADS),
        config.count("head_dim", default=64),
        config.count("n_groups", default=8),
        config.count("state_size", default=128),
        config.count("conv_kernel", default=4, maximum=MAXIMUM_KERNEL),
        bias=config.flag("use_bias", default=False),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )
    tensors = (
        *frame.tensors(),
        *mixer.tensors(frame.at("mixer"), frame.layers),
        *norms(frame.at(""), ("norm",), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(frame.layers),),
        head_count=mixer.head_count,
        kv_head_count=mixer.head_count,
        recurrent_state_precision=state_precision(config),
    )


def jamba(config: ConfigReader) -> Architecture:
    """Attention in one layer of eight, experts in every other; the rest is Mamba and plain feed-forwards."""
    frame = replace(read_frame(config), final_norm="final_layernorm")
    full = _every(config, frame, "attn_layer", period=8, offset=4)
    rest = tuple(layer for layer in frame.layers if layer not in set(full))
    attention, width = read_attention(config, frame.hidden_size), config.count("intermediate_size")
    mixer = Mamba1(
        frame.hidden_size,
        config.count("mamba_expand", default=2) * frame.hidden_size,
        config.count("mamba_d_state", default=16),
        config.count("mamba_d_conv", default=4, maximum=MAXIMUM_KERNEL),
        _step_rank(config, "mamba_dt_rank", frame.hidden_size),
        bias=config.flag("mamba_proj_bias", default=False),
        convolution_bias=config.flag("mamba_conv_bias", default=True),
        has_norms=True,
    )
    counts = read_expert_counts(config) if config.count("num_experts", default=16) > 1 else (0, 0)
    with_experts = _every(config, frame, "expert_layer", period=2, offset=1) if counts[0] else ()
    dense = tuple(layer for layer in frame.layers if layer not in set(with_experts))
    at = frame.at("feed_forward")
    tensors = (
        *frame.tensors(),
        *(attention.tensors(frame.at("self_attn"), full) if full else ()),
        *(mixer.tensors(frame.at("mamba"), rest) if rest else ()),
        *(FeedForward(frame.hidden_size, width).tensors(at, dense) if dense else ()),
        *(
            RoutedExperts(frame.hidden_size, width, *counts, router="router").tensors(at, with_experts)
            if with_experts
            else ()
        ),
        *norms(frame.at(""), ("input_layernorm", "pre_ff_layernorm"), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(rest), attention.layer_group(LayerKind.FULL, full)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts if with_experts else (0, 0),
        recurrent_state_precision=state_precision(config),
    )


def _every(config: ConfigReader, frame: Frame, name: str, *, period: int, offset: int) -> tuple[int, ...]:
    step = config.count(f"{name}_period", default=period)
    first = config.count(f"{name}_offset", default=offset, minimum=0)
    return tuple(layer for layer in frame.layers if layer % step == first)


def _mamba2_of(config: ConfigReader, hidden_size: int, *, has_norm: bool = True) -> Mamba2:
    """Under the names of Granite, Bamba and Falcon-H1."""
    head_count = config.count("mamba_n_heads", default=128, maximum=MAXIMUM_HEADS)
    inner = config.optional_count("mamba_d_ssm") or config.count("mamba_expand", default=2) * hidden_size
    if config.holds_text("mamba_d_head") and config.text("mamba_d_head") != "auto":
        raise config.refuse("mamba_d_head", "must be a number or auto")
    stated = None if config.holds_text("mamba_d_head") else config.optional_count("mamba_d_head")
    if head_count * (stated or inner // head_count) != inner:
        raise config.refuse("mamba_d_head", f"times {head_count} heads is not the inner width of {inner}")
    return Mamba2(
        hidden_size,
        head_count,
        inner // head_count,
        config.count("mamba_n_groups", default=1),
        config.count("mamba_d_state", default=256),
        config.count("mamba_d_conv", default=4, maximum=MAXIMUM_KERNEL),
        bias=config.flag("mamba_proj_bias", default=False),
        convolution_bias=config.flag("mamba_conv_bias", default=True),
        has_norm=has_norm,
    )


def granitemoehybrid(config: ConfigReader) -> Architecture:
    """Granite 4: Mamba-2 or attention in a layer, then routed experts (if any) beside one shared MLP."""
    frame = read_frame(config)
    where = layers_by_word(config, "layer_types", LAYER_WORDS, frame.layer_count)
    where = {kind: tuple(sorted(where[kind] + where[newer])) for kind, newer in NEWER_WORDS.items()}
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    mixer = _mamba2_of(config, frame.hidden_size)
    counts = read_expert_counts(config) if config.count("num_local_experts", default=0, minimum=0) else (0, 0)
    width, shared_width = config.count("intermediate_size"), config.count("shared_intermediate_size", default=1024)
    shared = FeedForward(
        frame.hidden_size,
        shared_width,
        fused=True,
        component=Component.SHARED_EXPERTS if counts[0] else Component.MLP,
        up_names=("input_linear",),
        down_name="output_linear",
    )
    experts = RoutedExperts(frame.hidden_size, width, *counts, router="router.layer")
    tensors = (
        *frame.tensors(),
        *(attention.tensors(frame.at("self_attn"), where[ATTENTION]) if where[ATTENTION] else ()),
        *(mixer.tensors(frame.at("mamba"), where[MAMBA]) if where[MAMBA] else ()),
        *(experts.tensors(frame.at("block_sparse_moe"), frame.layers) if counts[0] else ()),
        *shared.tensors(frame.at("shared_mlp"), frame.layers),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(where[MAMBA]), attention.layer_group(LayerKind.FULL, where[ATTENTION])),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
        recurrent_state_precision=state_precision(config),
    )


def bamba(config: ConfigReader) -> Architecture:
    """Mamba-2 with attention in the layers that ``attn_layer_indices`` names."""
    frame = replace(read_frame(config), final_norm="final_layernorm")
    named = set(config.counts("attn_layer_indices") or ())
    full = tuple(layer for layer in frame.layers if layer in named)
    rest = tuple(layer for layer in frame.layers if layer not in named)
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    mixer = _mamba2_of(config, frame.hidden_size)
    feed_forward = FeedForward(
        frame.hidden_size, config.count("intermediate_size"), bias=config.flag("mlp_bias", default=False)
    )
    tensors = (
        *frame.tensors(),
        *(attention.tensors(frame.at("self_attn"), full) if full else ()),
        *(mixer.tensors(frame.at("mamba"), rest) if rest else ()),
        *feed_forward.tensors(frame.at("feed_forward"), frame.layers),
        *norms(frame.at(""), ("input_layernorm", "pre_ff_layernorm"), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(rest), attention.layer_group(LayerKind.FULL, full)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        recurrent_state_precision=state_precision(config),
    )


def falcon_h1(config: ConfigReader) -> Architecture:
    """Attention and Mamba-2 side by side in every layer: each keeps a cache and a state."""
    frame = replace(read_frame(config), final_norm="final_layernorm")
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    if config.flag("projectors_bias", default=False):
        raise config.refuse("projectors_bias", "is true, which is not modelled for this family")
    mixer = _mamba2_of(config, frame.hidden_size, has_norm=config.flag("mamba_rms_norm", default=False))
    feed_forward = FeedForward(
        frame.hidden_size, config.count("intermediate_size"), bias=config.flag("mlp_bias", default=False)
    )
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("self_attn"), frame.layers),
        *mixer.tensors(frame.at("mamba"), frame.layers),
        *feed_forward.tensors(frame.at("feed_forward"), frame.layers),
        *norms(frame.at(""), ("input_layernorm", "pre_ff_layernorm"), frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (mixer.layer_group(frame.layers), attention.layer_group(LayerKind.FULL, frame.layers)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        recurrent_state_precision=state_precision(config),
    )
