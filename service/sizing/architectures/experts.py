"""Families with routed experts and grouped-query attention."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.sizing.architectures.building_blocks import (
    FeedForward,
    GroupedQueryAttention,
    Layers,
    RoutedExperts,
    norms,
    router,
    vector,
)
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    attention_groups,
    layer_element_count,
    multi_token_prediction,
    read_attention,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS, qwen_window
from service.sizing.architectures.layer_lists import layers_with_experts
from service.sizing.language_model import Component, LayerGroup, WeightTensor


@dataclass(frozen=True, slots=True)
class ExpertLayers:
    """What stands where a dense decoder has its feed-forward, and in which layers.

    ``has_router_bias`` marks a correction vector beside the router that is in the checkpoint but no parameter of
    the reference implementation; in a few families it is one.
    """

    experts: RoutedExperts
    layers: Layers
    at: str = "mlp"
    dense_at: str = "mlp"
    dense_width: int = 0
    shared_width: int = 0
    shared_name: str = "shared_experts"
    shared_is_gated: bool = False
    has_router_bias: bool = False
    router_bias_is_parameter: bool = False

    def tensors(self, frame: Frame, *, bias: bool = False) -> Iterator[WeightTensor]:
        dense_layers = tuple(layer for layer in frame.layers if layer not in set(self.layers))
        if dense_layers:
            dense = FeedForward(frame.hidden_size, self.dense_width, bias=bias)
            yield from dense.tensors(frame.at(self.dense_at), dense_layers)
        at = frame.at(self.at)
        yield from self.experts.tensors(at, self.layers)
        if self.router_bias_is_parameter:
            yield vector(f"{at}.moe_statics", self.experts.expert_count, self.layers)
        if self.shared_width:
            shared = FeedForward(frame.hidden_size, self.shared_width, bias=bias, component=Component.SHARED_EXPERTS)
            yield from shared.tensors(f"{at}.{self.shared_name}", self.layers)
        if self.shared_is_gated:
            yield router(f"{at}.shared_expert_gate", 1, frame.hidden_size, self.layers)

    @property
    def router_bias_count(self) -> int:
        return self.experts.expert_count * len(self.layers) if self.has_router_bias else 0


def expert_decoder(
    config: ConfigReader,
    frame: Frame,
    attention: GroupedQueryAttention,
    expert_layers: ExpertLayers,
    *,
    groups: tuple[LayerGroup, ...] | None = None,
    bias: bool = False,
    attention_at: str = "self_attn",
    layer_norms: Sequence[str] = PRE_NORMS,
    others: Sequence[WeightTensor] = (),
) -> Architecture:
    """Attention in every layer; experts in those that the family says, a feed-forward in the rest."""
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at(attention_at), frame.layers),
        *expert_layers.tensors(frame, bias=bias),
        *norms(frame.at(""), layer_norms, frame.hidden_size, frame.layers),
        *others,
    )
    mtp = multi_token_prediction(
        config.count("num_nextn_predict_layers", "num_mtp_modules", default=0, minimum=0, maximum=16),
        decoder_layer_count=layer_element_count(tensors, frame.layer_count - 1),
        hidden_size=frame.hidden_size,
        kv_elements_per_token=attention.kv_head_count * (attention.key_width + attention.value_width),
    )
    return frame.architecture(
        tensors,
        groups or attention_groups(config, attention, frame),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=(expert_layers.experts.expert_count, expert_layers.experts.experts_per_token),
        router_bias_count=expert_layers.router_bias_count,
        mtp=mtp,
    )


def mixtral(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    expert_count, top = read_expert_counts(config, ("num_local_experts",), ("num_experts_per_tok",))
    experts = RoutedExperts(
        frame.hidden_size,
        config.count("intermediate_size"),
        expert_count,
        top,
        up_matrices=("w1", "w3"),
        down_matrix="w2",
    )
    attention = read_attention(config, frame.hidden_size)
    groups = attention_groups(config, attention, frame, slides=lambda _: True, window_tokens=read_window(config))
    return expert_decoder(
        config, frame, attention, ExpertLayers(experts, frame.layers, "block_sparse_moe"), groups=groups
    )


def qwen_expert_layers(config: ConfigReader, frame: Frame, *, shared: bool) -> ExpertLayers:
    """Every ``decoder_sparse_step``-th layer has experts, except those that are named as dense."""
    expert_count, top = read_expert_counts(config, ("num_experts",), ("num_experts_per_tok",))
    experts = RoutedExperts(frame.hidden_size, config.count("moe_intermediate_size"), expert_count, top)
    step = config.count("decoder_sparse_step", default=1)
    dense = set(config.counts("mlp_only_layers") or ())
    layers = tuple(layer for layer in frame.layers if layer not in dense and (layer + 1) % step == 0)
    return ExpertLayers(
        experts,
        layers,
        dense_width=config.count("intermediate_size") if len(layers) < frame.layer_count else 0,
        shared_width=config.count("shared_expert_intermediate_size", minimum=0) if shared else 0,
        shared_name="shared_expert",
        shared_is_gated=shared,
    )


def qwen3_moe(config: ConfigReader) -> Architecture:
    frame, (window_tokens, slides) = read_frame(config), qwen_window(config)
    bias = config.flag("attention_bias", default=False)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, head_norms=True)
    return expert_decoder(
        config,
        frame,
        attention,
        qwen_expert_layers(config, frame, shared=False),
        groups=attention_groups(config, attention, frame, slides=slides, window_tokens=window_tokens),
    )


def qwen2_moe(config: ConfigReader) -> Architecture:
    frame, (window_tokens, slides) = read_frame(config), qwen_window(config)
    attention = read_attention(config, frame.hidden_size, bias=config.flag("qkv_bias", default=True))
    return expert_decoder(
        config,
        frame,
        attention,
        qwen_expert_layers(config, frame, shared=True),
        groups=attention_groups(config, attention, frame, slides=slides, window_tokens=window_tokens),
    )


def glm4_moe(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    expert_count, top = read_expert_counts(config, ("n_routed_experts",), ("num_experts_per_tok",))
    width = config.count("moe_intermediate_size")
    first = config.count("first_k_dense_replace", default=1, minimum=0)
    return expert_decoder(
        config,
        frame,
        read_attention(
            config,
            frame.hidden_size,
            bias=config.flag("attention_bias", default=False),
            head_norms=config.flag("use_qk_norm", default=False),
        ),
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, expert_count, top),
            layers_with_experts(config, frame.layer_count, frame.layers[first:]),
            dense_width=config.count("intermediate_size"),
            shared_width=config.count("n_shared_experts", default=1, minimum=0) * width,
            has_router_bias=True,
        ),
    )


def ernie4_5_moe(config: ConfigReader) -> Architecture:
    frame, bias = read_frame(config, tied_by_default=True), config.flag("use_bias", default=False)
    expert_count, top = read_expert_counts(config, ("moe_num_experts",), ("moe_k",))
    width = config.count("moe_intermediate_size")
    first, step = (
        config.count("moe_layer_start_index", default=1, minimum=0),
        config.count("moe_layer_interval", default=1),
    )
    last = config.count("moe_layer_end_index", default=-1, minimum=-1)
    last = frame.layer_count - 1 if last == -1 else last
    layers = tuple(layer for layer in frame.layers if first <= layer <= last and (layer + 1) % step == 0)
    return expert_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, bias=bias, output_bias=bias),
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, expert_count, top),
            layers,
            dense_width=config.count("intermediate_size"),
            shared_width=config.count("moe_num_shared_experts", default=2, minimum=0) * width,
            router_bias_is_parameter=True,
        ),
        bias=bias,
    )


def hunyuan_v1_moe(config: ConfigReader) -> Architecture:
    """Its files say a figure once for each layer; only models with alike layers are published."""
    if config.flag("use_cla", default=False):
        raise config.refuse("use_cla", "is true: attention shared between layers is not modelled")
    frame = read_frame(config)
    expert_count, top = (_alike(config, name, frame.layer_count) for name in ("num_experts", "moe_topk"))
    if top > expert_count:
        raise config.refuse("moe_topk", f"is {top}, more than the {expert_count} experts that there are")
    named = config.has("moe_intermediate_size")
    width = _alike(config, "moe_intermediate_size" if named else "intermediate_size", frame.layer_count)
    bias, shared = config.flag("attention_bias", default=False), config.has("num_shared_expert")
    return expert_decoder(
        config,
        frame,
        read_attention(
            config,
            frame.hidden_size,
            bias=bias,
            output_bias=bias,
            head_norms=config.flag("use_qk_norm", default=True),
        ),
        ExpertLayers(
            RoutedExperts(frame.hidden_size, width, expert_count, top, router="gate.wg"),
            frame.layers,
            shared_width=(_alike(config, "num_shared_expert", frame.layer_count) if shared else 1) * width,
            shared_name="shared_mlp",
        ),
    )


def _alike(config: ConfigReader, name: str, layer_count: int) -> int:
    """A number, or a list that says the same number for every layer."""
    if not config.holds_list(name):
        return config.count(name)
    values = set(config.counts(name, minimum=1, length=layer_count) or ())
    if len(values) != 1:
        raise config.refuse(name, "differs between layers, which is not modelled for this family")
    return values.pop()


def minimax_m2(config: ConfigReader) -> Architecture:
    frame = read_frame(config)
    expert_count, top = read_expert_counts(config, ("num_local_experts",), ("num_experts_per_tok",))
    experts = RoutedExperts(
        frame.hidden_size,
        config.count("intermediate_size"),
        expert_count,
        top,
        up_matrices=("w1", "w3"),
        down_matrix="w2",
    )
    return expert_decoder(
        config,
        frame,
        read_attention(config, frame.hidden_size, width_norms=config.flag("use_qk_norm", default=True)),
        ExpertLayers(experts, frame.layers, "block_sparse_moe", has_router_bias=True),
    )
