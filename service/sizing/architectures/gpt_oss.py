"""gpt-oss: windows in every other layer, sinks beside the scores, a layer's experts in one tensor."""

from collections.abc import Iterator

from service.sizing.architectures.building_blocks import linear, norms, router, vector
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    attention_groups,
    read_attention,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.language_model import Component, Sharding, WeightTensor


def gpt_oss(config: ConfigReader) -> Architecture:
    """Windows in every other layer, sinks beside the scores, biases on everything, experts in one tensor."""
    frame = read_frame(config)
    expert_count, top = read_expert_counts(config, ("num_local_experts",), ("num_experts_per_tok", "experts_per_token"))
    bias = config.flag("attention_bias", default=True)
    attention = read_attention(config, frame.hidden_size, bias=bias, output_bias=bias, has_sinks=True)
    tensors = (
        *frame.tensors(),
        *attention.tensors(frame.at("self_attn"), frame.layers),
        *_gpt_oss_experts(frame, config.count("intermediate_size"), expert_count),
        *norms(frame.prefix + ".layers.{layer}", PRE_NORMS, frame.hidden_size, frame.layers),
    )
    return Architecture(
        layer_count=frame.layer_count,
        hidden_size=frame.hidden_size,
        vocabulary_size=frame.vocabulary_size,
        max_context_tokens=frame.max_context_tokens,
        attention_head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        tied_embedding=frame.tied,
        tensors=tensors,
        layer_groups=attention_groups(
            config,
            attention,
            frame,
            slides=lambda layer: layer % 2 == 0,
            window_tokens=read_window(config, default=128),
        ),
        expert_count=expert_count,
        experts_per_token=top,
    )


def _gpt_oss_experts(frame: Frame, width: int, expert_count: int) -> Iterator[WeightTensor]:
    yield router(frame.at("mlp.router"), expert_count, frame.hidden_size, frame.layers)
    yield vector(frame.at("mlp.router.bias"), expert_count, frame.layers)
    shapes = (("gate_up_proj", (2 * width, frame.hidden_size)), ("down_proj", (frame.hidden_size, width)))
    for name, shape in shapes:
        yield from linear(
            frame.at(f"mlp.experts.{name}"),
            Component.EXPERTS,
            shape,
            frame.layers,
            bias=True,
            bias_component=Component.EXPERTS,
            copies=expert_count,
            sharding=Sharding.EXPERT,
        )
