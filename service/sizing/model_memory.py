"""A language model's memory at a glance: counts, weight bytes by scheme, cache and state at a context."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.sizing.cache import (
    elements_bytes,
    kv_cache_bytes,
    kv_cache_bytes_charged_in_full,
    kv_cache_bytes_per_token,
    kv_elements_per_token,
    source_kv_cache_bytes_per_token,
    state_bytes_per_sequence,
)
from service.sizing.language_model import LanguageModel, active_parameter_count, parameter_counts
from service.sizing.memory_rows import MemoryRow, memory_rows
from service.sizing.precision import Precision
from service.sizing.weight_schemes import SCHEMES, stored_weights


@dataclass(frozen=True, slots=True)
class CacheMemory:
    """Of one sequence on one rank. ``engine_bytes`` charges every layer in full, as engines may."""

    ideal_bytes: int
    engine_bytes: int
    bytes_per_token: int
    source_bytes_per_token: int
    state_bytes_per_sequence: int


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Layers of one kind: how many, and what each keeps per token on one rank."""

    kind: str
    count: int
    kv_bytes_per_token: int
    window_tokens: int | None
    source_kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Weight bytes are of the whole model; cache and layers of one of the ``tp`` ranks."""

    parameter_counts: Mapping[str, int]
    weight_bytes: Mapping[str, int]
    kv_cache: CacheMemory
    layers: tuple[LayerMemory, ...]
    rows: tuple[MemoryRow, ...]


def model_memory(
    model: LanguageModel, *, context_tokens: int, kv_cache: Precision = Precision.BF16, tp: int = 1
) -> ModelMemory:
    return ModelMemory(
        parameter_counts=model_parameter_counts(model),
        weight_bytes={
            **{scheme: stored_weights(model, scheme).total_bytes for scheme in SCHEMES},
            "checkpoint": stored_weights(model).total_bytes,
        },
        kv_cache=CacheMemory(
            ideal_bytes=kv_cache_bytes(model, context_tokens=context_tokens, kv_cache=kv_cache, tp=tp),
            engine_bytes=kv_cache_bytes_charged_in_full(model, context_tokens=context_tokens, kv_cache=kv_cache, tp=tp),
            bytes_per_token=kv_cache_bytes_per_token(model, kv_cache=kv_cache, tp=tp),
            source_bytes_per_token=source_kv_cache_bytes_per_token(model, kv_cache=kv_cache, tp=tp),
            state_bytes_per_sequence=state_bytes_per_sequence(model, tp=tp),
        ),
        layers=tuple(
            LayerMemory(
                kind=group.kind.value,
                count=group.layer_count,
                kv_bytes_per_token=elements_bytes(kv_elements_per_token(group, tp=tp), kv_cache),
                window_tokens=group.window_tokens,
                source_kv_bytes_per_token=elements_bytes(group.kv_elements_per_source_token, kv_cache),
            )
            for group in model.layer_groups
        ),
        rows=memory_rows(model, context_tokens=context_tokens, kv_cache=kv_cache, tp=tp),
    )


def model_parameter_counts(model: LanguageModel) -> dict[str, int]:
    """By component beside total and active; the router's correction vectors and the MTP modules stand apart."""
    by_component = parameter_counts(model.tensors)
    return {
        "total": sum(by_component.values()),
        "active": active_parameter_count(model),
        **{component.value: count for component, count in by_component.items()},
        "router_bias": model.router_bias_count,
        "mtp": model.mtp.parameter_count if model.mtp else 0,
    }
