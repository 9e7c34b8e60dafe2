"""Nemotron-H and Nemotron-3: each layer is one of Mamba-2, attention, feed-forward or experts."""

from collections.abc import Iterator
from typing import Final

from service.sizing.architectures.building_blocks import (
    FeedForward,
    GroupedQueryAttention,
    Layers,
    RoutedExperts,
    linear,
    norms,
)
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import (
    STATE_PRECISIONS,
    Architecture,
    Frame,
    layer_element_count,
    multi_token_prediction,
    read_attention,
    read_expert_counts,
    read_frame,
)
from service.sizing.architectures.state_space import Mamba2
from service.sizing.language_model import (
    Component,
    LayerGroup,
    LayerKind,
    MultiTokenPrediction,
    Sharding,
    WeightTensor,
)

MAMBA, ATTENTION, FEED_FORWARD, EXPERTS = "M", "*", "-", "E"
LAYER_NAMES: Final = {"mamba": MAMBA, "attention": ATTENTION, "mlp": FEED_FORWARD, "moe": EXPERTS}
NEWER_NAMES: Final = {"linear_attention": MAMBA, "full_attention": ATTENTION}


def nemotron_h(config: ConfigReader) -> Architecture:
    pattern = _pattern(config)
    where = {each: tuple(i for i, kind in enumerate(pattern) if kind == each) for each in LAYER_NAMES.values()}
    frame = backbone_frame(config, len(pattern))
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias)
    mamba = read_mamba(config, frame.hidden_size)
    expert_count, experts_per_token = nemotron_expert_counts(config) if where[EXPERTS] else (0, 0)
    tensors = tuple(_tensors(config, frame, where, attention, mamba))
    return Architecture(
        layer_count=frame.layer_count,
        hidden_size=frame.hidden_size,
        vocabulary_size=frame.vocabulary_size,
        max_context_tokens=frame.max_context_tokens,
        attention_head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        tied_embedding=frame.tied,
        tensors=tensors,
        layer_groups=tuple(_layer_groups(where, attention, mamba)),
        expert_count=expert_count,
        experts_per_token=experts_per_token,
        recurrent_state_precision=config.choice(STATE_PRECISIONS, "mamba_ssm_cache_dtype", default="auto"),
        router_bias_count=expert_count * len(where[EXPERTS]),
        mtp=_mtp(config, frame, tensors, where, attention.layer_group(LayerKind.FULL, (0,))),
    )


def _tensors(
    config: ConfigReader, frame: Frame, where: dict[str, Layers], attention: GroupedQueryAttention, mamba: Mamba2
) -> Iterator[WeightTensor]:
    at = frame.at("mixer")
    yield from frame.tensors()
    yield from norms(frame.prefix + ".layers.{layer}", ("norm",), frame.hidden_size, frame.layers)
    if where[ATTENTION]:
        yield from attention.tensors(at, where[ATTENTION])
    if where[MAMBA]:
        yield from mamba.tensors(at, where[MAMBA])
    if where[FEED_FORWARD]:
        width, bias = config.count("intermediate_size"), config.flag("mlp_bias", default=False)
        yield from FeedForward(frame.hidden_size, width, gated=False, bias=bias).tensors(at, where[FEED_FORWARD])
    if where[EXPERTS]:
        yield from nemotron_experts(config, frame, where[EXPERTS])


def _layer_groups(where: dict[str, Layers], attention: GroupedQueryAttention, mamba: Mamba2) -> Iterator[LayerGroup]:
    if where[MAMBA]:
        yield mamba.layer_group(where[MAMBA])
    if where[ATTENTION]:
        yield attention.layer_group(LayerKind.FULL, where[ATTENTION])
    if rest := tuple(sorted(where[FEED_FORWARD] + where[EXPERTS])):
        yield LayerGroup(LayerKind.NONE, rest)


def _pattern(config: ConfigReader) -> str:
    """One character a layer; newer files spell the kinds out instead."""
    names = config.texts("layers_block_type", "layer_types")
    if names is None:
        pattern = config.text("hybrid_override_pattern")
        key = "hybrid_override_pattern"
    else:
        key = config.name_of("layers_block_type", "layer_types")
        pattern = "".join({**LAYER_NAMES, **NEWER_NAMES}.get(name, "?") for name in names)
    if not pattern or set(pattern) - set(LAYER_NAMES.values()):
        raise config.refuse(key, f"may hold only {', '.join(f'{mark} ({name})' for name, mark in LAYER_NAMES.items())}")
    stated = config.optional_count("num_hidden_layers", maximum=MAXIMUM_LAYERS)
    if stated not in (None, len(pattern)) or len(pattern) > MAXIMUM_LAYERS:
        raise config.refuse(key, f"describes {len(pattern)} layers, but num_hidden_layers is {stated}")
    return pattern


def backbone_frame(config: ConfigReader, layer_count: int) -> Frame:
    frame = read_frame(config, layer_count=layer_count, prefix="backbone")
    return Frame(
        frame.hidden_size,
        frame.vocabulary_size,
        frame.layer_count,
        frame.tied,
        frame.max_context_tokens,
        prefix="backbone",
        embedding="embeddings",
        final_norm="norm_f",
    )


def read_mamba(config: ConfigReader, hidden_size: int) -> Mamba2:
    return Mamba2(
        hidden_size,
        config.count("mamba_num_heads", maximum=MAXIMUM_HEADS),
        config.count("mamba_head_dim"),
        config.count("n_groups", "mamba_n_groups"),
        config.count("ssm_state_size"),
        config.count("conv_kernel", default=4, maximum=64),
        bias=config.flag("use_bias", "mamba_proj_bias", default=False),
        convolution_bias=config.flag("use_conv_bias", default=True),
    )


def nemotron_expert_counts(config: ConfigReader) -> tuple[int, int]:
    return read_expert_counts(config, ("n_routed_experts",), ("num_experts_per_tok",))


def nemotron_experts(config: ConfigReader, frame: Frame, layers: Layers) -> Iterator[WeightTensor]:
    """Two matrices an expert, without a gate. Latent experts work between two projections of the hidden size."""
    at, (expert_count, experts_per_token) = frame.at("mixer"), nemotron_expert_counts(config)
    latent_size = config.optional_count("moe_latent_size")
    experts = RoutedExperts(
        latent_size or frame.hidden_size,
        config.count("moe_intermediate_size"),
        expert_count,
        experts_per_token,
        gated=False,
        router_hidden_size=frame.hidden_size,
    )
    yield from experts.tensors(at, layers)
    shared_count = config.count("n_shared_experts", default=0, minimum=0)
    if shared_count:
        width = config.count("moe_shared_expert_intermediate_size") * shared_count
        shared = FeedForward(frame.hidden_size, width, gated=False, component=Component.SHARED_EXPERTS)
        yield from shared.tensors(f"{at}.shared_experts", layers)
    if latent_size:
        shapes = (
            ("fc1_latent_proj", (latent_size, frame.hidden_size)),
            ("fc2_latent_proj", (frame.hidden_size, latent_size)),
        )
        for name, shape in shapes:
            yield from linear(f"{at}.{name}", Component.MLP, shape, layers, sharding=Sharding.REPLICATED)


def _mtp(
    config: ConfigReader,
    frame: Frame,
    tensors: tuple[WeightTensor, ...],
    where: dict[str, Layers],
    attention: LayerGroup,
) -> MultiTokenPrediction | None:
    """The drafting module has a pattern of its own, each mark a layer like the model's own of that kind."""
    count = config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16)
    pattern = config.text("mtp_hybrid_override_pattern", default="")
    if not count or not pattern:
        return None
    missing = next((mark for mark in pattern if not where.get(mark)), None)
    if missing is not None:
        raise config.refuse("mtp_hybrid_override_pattern", f"holds {missing!r}, a kind that no layer of the model has")
    return multi_token_prediction(
        count,
        decoder_layer_count=sum(layer_element_count(tensors, where[mark][0]) for mark in pattern),
        hidden_size=frame.hidden_size,
        kv_elements_per_token=pattern.count(ATTENTION) * attention.kv_elements_per_token,
    )
