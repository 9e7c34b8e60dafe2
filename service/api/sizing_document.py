"""The answer of ``POST /sizing`` as a document, built by hand: validating it again would cost more than the physics.

Its schema is ``sizing_answer.py``; the tests hold the two together. Words of closed sets are written as plain text:
an enum costs the serialiser more than a number of the physics, and ``_value_`` skips the descriptor of ``value``.
"""

from enum import Enum
from typing import Any

from service.api.cost_document import cost_document, energy_document
from service.api.evidence_document import evidence_document
from service.api.layouts import layout_document, parallelism_document, pools_document
from service.api.memory_document import memory_fit_document
from service.api.speed_document import (
    crossover_document,
    decode_document,
    prefill_document,
    serving_document,
    wide_intervals,
)
from service.catalogue.live_evidence import Evidence
from service.catalogue.snapshot import SnapshotAccelerator, SnapshotLanguageModel
from service.sizing.citations import (
    BOARD_POWER_RUNS,
    FITTED_RUNS,
    MLPERF_LIMITS,
    TAIL_RUNS,
    WALL_POWER_RUNS,
    Citation,
)
from service.sizing.installation import main_choice
from service.sizing.parallelism import Parallelism
from service.sizing.plan import SizingResult
from service.sizing.remarks import Assumption, WarningCode
from service.sizing.resolution import Resolved
from service.sizing.workload import Statistic


def sizing_document(
    result: SizingResult,
    *,
    accelerator: SnapshotAccelerator,
    stored_model: SnapshotLanguageModel | None,
    catalogue_revision: int,
    evidence: Evidence | None,
    defaults: list[Assumption],
) -> dict[str, Any]:
    reached, resolved = result.speed, result.resolved
    return {
        "inputs": _inputs(result, accelerator, stored_model, catalogue_revision),
        "memory_fit": memory_fit_document(result),
        "pools": pools_document(result.pools),
        "crossover": crossover_document(result.crossover),
        "prefill": prefill_document(reached) if reached else None,
        "decode": decode_document(reached) if reached else None,
        "serving": serving_document(reached) if reached else None,
        "energy": energy_document(result),
        "cost": cost_document(result),
        "verdict": {
            "interactive": {"suits": result.verdict.interactive.suits, "because": result.verdict.interactive.because},
            "batch": {"suits": result.verdict.batch.suits, "because": result.verdict.batch.because},
        },
        "evidence": evidence_document(reached, revision=evidence.revision if evidence else None),
        "assumptions": [
            {"field": each.field, "value": _assumed(each.value), "origin": each.origin}
            for each in (*defaults, *resolved.remarks.assumptions)
        ],
        "warnings": [
            *({"code": each.code._value_, "detail": each.detail} for each in resolved.remarks.warnings),
            *(wide_intervals(reached) if reached else ()),
            *(EVIDENCE_LOADING if evidence and not evidence.is_complete else ()),
        ],
        "sources": [
            *accelerator.cited,
            *(stored_model.cited if stored_model else ()),
            {"title": resolved.deployment.settings.engine.source, "url": None},
            *_citations(result),
        ],
    }


EVIDENCE_LOADING = [
    {
        "code": WarningCode.EVIDENCE_LOADING.value,
        "detail": "the stored runs are still being read: ask again when /health/ready says ready",
    }
]


def _cited(*citations: Citation) -> list[dict[str, str]]:
    return [{"title": each.title, "url": each.url} for each in citations]


CITED_FITTED_RUNS, CITED_TAIL_RUNS, CITED_LIMITS = _cited(*FITTED_RUNS), _cited(*TAIL_RUNS), _cited(MLPERF_LIMITS)
CITED_POWER_RUNS = _cited(*BOARD_POWER_RUNS, *WALL_POWER_RUNS)


def _citations(result: SizingResult) -> list[dict[str, str]]:
    """Of the numbers of the method that this answer rests on."""
    cited: list[dict[str, str]] = []
    target = result.resolved.inputs.target
    if result.speed:
        cited += CITED_FITTED_RUNS
        if target.statistic in (Statistic.P90, Statistic.P99):
            cited += CITED_TAIL_RUNS
        if not target.is_set:
            cited += CITED_LIMITS
    if any(each.power_w_per_gpu for each in result.powers):
        cited += CITED_POWER_RUNS
    return cited


def _assumed(value: Any) -> Any:
    """As JSON has it: a layout is an object, a member of a closed set its plain word."""
    if isinstance(value, Parallelism):
        return parallelism_document(value)
    return value.value if isinstance(value, Enum) else value


def _inputs(
    result: SizingResult,
    accelerator: SnapshotAccelerator,
    stored_model: SnapshotLanguageModel | None,
    catalogue_revision: int,
) -> dict[str, Any]:
    resolved = result.resolved
    inputs, settings = resolved.inputs, resolved.deployment.settings
    target = inputs.target
    return {
        "model": resolved.deployment.model.slug,
        "model_revision": stored_model.revision if stored_model else None,
        "accelerator": accelerator.slug,
        "accelerator_revision": accelerator.revision,
        "catalogue_revision": catalogue_revision,
        "precision": _precision(resolved),
        "density": inputs.density._value_,
        "parallelism": layout_document(result),
        "gpu_count_per_replica": result.replicas.gpu_count_per_replica,
        "replica_count": result.replicas.replica_count,
        "gpu_count_total": result.replicas.gpu_count_per_replica * result.replicas.replica_count,
        "idle_gpu_count": result.replicas.idle_gpu_count,
        "workload": {
            "isl_tokens": resolved.isl.mean_tokens,
            "osl_tokens": resolved.osl.mean_tokens,
            "concurrency": result.speed.point.concurrency if result.speed else inputs.workload.concurrency,
            "request_rate_per_s": inputs.workload.request_rate_per_s,
            "cached_prefix_tokens": inputs.workload.cached_prefix_tokens,
        },
        "target": {
            "ttft_s": target.ttft_s,
            "tpot_s": target.tpot_s,
            "statistic": (target.statistic or Statistic.P50).value,
        }
        if target.is_set
        else None,
        "engine": {
            "name": settings.engine.name,
            "version": inputs.engine.version or settings.release.version,
            "rules_of_version": settings.release.version,
            "memory_fraction": settings.memory_fraction,
            "max_model_len_tokens": settings.max_model_len_tokens,
            "max_num_batched_tokens": settings.max_num_batched_tokens,
            "max_num_seqs": settings.max_num_seqs,
            "prefix_caching": settings.prefix_caching,
            "cuda_graphs": settings.cuda_graphs,
            "kv_cache_memory_bytes": inputs.engine.kv_cache_memory_bytes,
            "decode_context_parallel_count": settings.context_shards,
            "free_memory_bytes": inputs.engine.free_memory_bytes,
        },
        "speculation": {
            "method": inputs.speculation.method,
            "draft_tokens": inputs.speculation.draft_tokens,
            "acceptance_length_tokens": inputs.speculation.acceptance_length_tokens,
        }
        if inputs.speculation
        else None,
        "power": {
            "limit_w_per_gpu": inputs.power.limit_w_per_gpu,
            "pue": inputs.power.pue,
            "scope": inputs.power.scope._value_,
        },
        "economics": {
            "usd_per_gpu_h": inputs.economics.usd_per_gpu_h,
            "usd_per_kwh": inputs.economics.usd_per_kwh,
            "on": inputs.economics.on,
        }
        if inputs.economics
        else None,
    }


def _precision(resolved: Resolved) -> dict[str, Any]:
    scheme = resolved.deployment.weights.scheme
    choice = main_choice(resolved.rates, resolved.deployment.weights) if resolved.rates else None
    return {
        "weights": scheme,
        "kv_cache": resolved.deployment.kv_cache._value_,
        "compute": choice.precision._value_ if choice else None,
        "compute_reason": choice.reason if choice else None,
    }
