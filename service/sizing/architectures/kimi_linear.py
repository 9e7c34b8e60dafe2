"""Kimi-Linear: delta attention in three layers of four, latent attention in the fourth, experts after a dense layer."""

from service.sizing.architectures.building_blocks import RoutedExperts, norms
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import Architecture, Frame, read_expert_counts, read_frame
from service.sizing.architectures.deepseek import read_latent_attention
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.experts import ExpertLayers
from service.sizing.architectures.layer_lists import layers_by_word, layers_with_experts
from service.sizing.architectures.linear_attention import KimiDelta
from service.sizing.precision import Precision


def kimi_linear(config: ConfigReader) -> Architecture:
    """The recurrent state is kept in 32 bits, as engines do whatever the elements' precision."""
    frame = read_frame(config)
    section = config.optional_section("linear_attn_config")
    full = _full_layers(section, frame) if section else _layers_of_full_attention(config, frame)
    rest = tuple(layer for layer in frame.layers if layer not in set(full))
    latent = read_latent_attention(config, frame.hidden_size)
    delta = KimiDelta(
        frame.hidden_size,
        (section or config).count("num_heads" if section else "linear_num_heads", maximum=MAXIMUM_HEADS),
        (section or config).count("head_dim" if section else "linear_head_dim"),
        (section or config).count("short_conv_kernel_size", "linear_conv_kernel_dim", default=4, maximum=64),
    )
    experts = _expert_layers(config, frame)
    at = frame.at("self_attn")
    tensors = (
        *frame.tensors(),
        *(delta.tensors(at, rest) if rest else ()),
        *(latent.tensors(at, full) if full else ()),
        *experts.tensors(frame),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return frame.architecture(
        tensors,
        (delta.layer_group(rest), latent.layer_group(full)),
        head_count=latent.head_count,
        kv_head_count=latent.head_count,
        experts=(experts.experts.expert_count, experts.experts.experts_per_token),
        recurrent_state_precision=Precision.FP32,
        router_bias_count=experts.router_bias_count,
    )


def _full_layers(section: ConfigReader, frame: Frame) -> tuple[int, ...]:
    """The list counts layers from one."""
    named = section.counts("full_attn_layers", minimum=1, maximum=MAXIMUM_LAYERS)
    if named is None or max(named, default=0) > frame.layer_count:
        raise section.refuse("full_attn_layers", f"must name layers from 1 to {frame.layer_count}")
    return tuple(sorted({layer - 1 for layer in named}))


def _layers_of_full_attention(config: ConfigReader, frame: Frame) -> tuple[int, ...]:
    """Newer files name the types, and say the linear layers' sizes at the top."""
    return layers_by_word(config, "layer_types", ("full_attention", "linear_attention"), frame.layer_count)[
        "full_attention"
    ]


def _expert_layers(config: ConfigReader, frame: Frame) -> ExpertLayers:
    width = config.count("moe_intermediate_size")
    first = config.count("first_k_dense_replace", default=0, minimum=0)
    step = config.count("moe_layer_freq", default=1)
    layers = tuple(layer for layer in frame.layers if layer >= first and layer % step == 0)
    return ExpertLayers(
        RoutedExperts(
            frame.hidden_size,
            width,
            *read_expert_counts(config),
            up_matrices=("w1", "w3"),
            down_matrix="w2",
        ),
        layers_with_experts(config, frame.layer_count, layers),
        at="block_sparse_moe",
        dense_width=config.count("intermediate_size"),
        shared_width=config.count("num_shared_experts", default=0, minimum=0) * width,
        has_router_bias=True,
    )
