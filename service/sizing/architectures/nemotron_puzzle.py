"""Nemotron-H pruned by Puzzle: a list says for each layer what it is and which of its sizes are its own."""

from collections.abc import Iterator
from dataclasses import replace

from service.sizing.architectures.building_blocks import FeedForward, Layers, norms
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.decoder import (
    STATE_PRECISIONS,
    Architecture,
    Frame,
    layer_element_count,
    multi_token_prediction,
    read_attention,
)
from service.sizing.architectures.nemotron_h import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    LAYER_NAMES,
    MAMBA,
    NEWER_NAMES,
    backbone_frame,
    nemotron_expert_counts,
    nemotron_experts,
    read_mamba,
)
from service.sizing.language_model import Component, LayerGroup, LayerKind, MultiTokenPrediction, WeightTensor

Alike = list[tuple[str, ConfigReader, Layers]]


def nemotron_h_puzzle(config: ConfigReader) -> Architecture:
    """Layers of one kind with one set of sizes are one group, and as Nemotron-H has them."""
    sections = config.sections("block_configs")
    if not sections:
        raise config.refuse("block_configs", "describes no layer")
    frame = backbone_frame(config, len(sections))
    alike = _alike(config, sections)
    tensors = (
        *frame.tensors(),
        *norms(frame.at(""), ("norm",), frame.hidden_size, frame.layers),
        *(each for kind, reader, layers in alike for each in _tensors(kind, reader, frame, layers)),
    )
    first_attention = next((reader for kind, reader, _ in alike if kind == ATTENTION), config)
    attention = read_attention(first_attention, frame.hidden_size)
    active, counts = _active_experts(alike, frame)
    architecture = frame.architecture(
        tensors,
        (_layer_group(kind, reader, frame, layers) for kind, reader, layers in alike),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
        experts=counts,
        recurrent_state_precision=config.choice(STATE_PRECISIONS, "mamba_ssm_cache_dtype", default="auto"),
        router_bias_count=sum(
            nemotron_expert_counts(reader)[0] * len(layers) for kind, reader, layers in alike if kind == EXPERTS
        ),
        mtp=_mtp(config, frame),
    )
    return replace(architecture, active_expert_parameter_count=active)


def _alike(config: ConfigReader, sections: tuple[ConfigReader, ...]) -> Alike:
    found: dict[str, tuple[str, ConfigReader, list[int]]] = {}
    for layer, section in enumerate(sections):
        name = section.text("block_type")
        kind = {**LAYER_NAMES, **NEWER_NAMES}.get(name)
        if kind is None:
            raise section.refuse("block_type", f"is {name[:60]!r}; known are {', '.join(LAYER_NAMES)}")
        found.setdefault(section.signature(), (kind, config.overlaid(section), []))[2].append(layer)
    return [(kind, reader, tuple(layers)) for kind, reader, layers in found.values()]


def _tensors(kind: str, reader: ConfigReader, frame: Frame, layers: Layers) -> Iterator[WeightTensor]:
    at, hidden = frame.at("mixer"), frame.hidden_size
    if kind == ATTENTION:
        bias = reader.flag("attention_bias", default=False)
        yield from read_attention(reader, hidden, bias=bias, output_bias=bias).tensors(at, layers)
    elif kind == MAMBA:
        yield from read_mamba(reader, hidden).tensors(at, layers)
    elif kind == FEED_FORWARD:
        width, bias = reader.count("intermediate_size"), reader.flag("mlp_bias", default=False)
        yield from FeedForward(hidden, width, gated=False, bias=bias).tensors(at, layers)
    else:
        yield from nemotron_experts(reader, frame, layers)


def _layer_group(kind: str, reader: ConfigReader, frame: Frame, layers: Layers) -> LayerGroup:
    if kind == ATTENTION:
        window = reader.optional_count("sliding_window")
        attention = read_attention(reader, frame.hidden_size)
        return attention.layer_group(LayerKind.SLIDING if window else LayerKind.FULL, layers, window)
    if kind == MAMBA:
        return read_mamba(reader, frame.hidden_size).layer_group(layers)
    return LayerGroup(LayerKind.NONE, layers)


def _active_experts(alike: Alike, frame: Frame) -> tuple[int | None, tuple[int, int]]:
    """Expert parameters that a token meets, and counts that stand for all layers: the most experts, the mean share."""
    total = active = most = 0
    for kind, reader, layers in alike:
        if kind != EXPERTS:
            continue
        expert_count, top = nemotron_expert_counts(reader)
        tensors = nemotron_experts(reader, frame, layers)
        held = sum(each.element_count for each in tensors if each.component is Component.EXPERTS)
        total, active, most = total + held, active + held * top // expert_count, max(most, expert_count)
    if not total:
        return None, (0, 0)
    return active, (most, max(1, round(most * active / total)))


def _mtp(config: ConfigReader, frame: Frame) -> MultiTokenPrediction | None:
    """The drafting module's layers are described like the others."""
    count = config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16)
    if not count or not config.has("mtp_block_configs"):
        return None
    layer_count = kv_elements = 0
    for kind, reader, layers in _alike(config, config.sections("mtp_block_configs")):
        tensors = (*_tensors(kind, reader, frame, (0,)), *norms(frame.at(""), ("norm",), frame.hidden_size, (0,)))
        layer_count += layer_element_count(tensors, 0) * len(layers)
        kv_elements += _layer_group(kind, reader, frame, (0,)).kv_elements_per_token * len(layers)
    return multi_token_prediction(
        count, decoder_layer_count=layer_count, hidden_size=frame.hidden_size, kv_elements_per_token=kv_elements
    )
