"""The answer of ``POST /sizing`` as a document, built by hand: validating it again would cost more than the physics.

Its schema is ``sizing_answer.py``; the tests hold the two together. Words of closed sets are written as plain text:
an enum costs the serialiser more than a number of the physics, and ``_value_`` skips the descriptor of ``value``.
"""

from enum import Enum
from math import isinf
from typing import Any

from service.api.evidence_document import evidence_document
from service.api.layouts import layout_document, parallelism_document, pools_document
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
from service.sizing.crossover import Crossover
from service.sizing.estimate import Estimate
from service.sizing.installation import main_choice
from service.sizing.memory import MemoryFit, PoolChange
from service.sizing.parallelism import Parallelism
from service.sizing.plan import SizingResult
from service.sizing.rank_memory import RankMemory
from service.sizing.remarks import Assumption, WarningCode
from service.sizing.resolution import Resolved
from service.sizing.speed import Speed
from service.sizing.step import Step
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
        "memory_fit": _memory_fit(result),
        "pools": pools_document(result.pools),
        "crossover": _crossover(result.crossover),
        "prefill": _prefill(reached) if reached else None,
        "decode": _decode(reached) if reached else None,
        "serving": _serving(reached) if reached else None,
        "energy": _energy(result),
        "cost": _cost(result),
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
            *(_wide_intervals(reached) if reached else ()),
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


def estimate(of: Estimate | None) -> dict[str, Any] | None:
    if of is None:
        return None
    value, low, high, coverage_fraction, basis = of
    return {
        "value": value,
        "low": low,
        "high": high,
        "coverage_fraction": coverage_fraction,
        "basis": basis._value_,
    }


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


def _memory_fit(result: SizingResult) -> dict[str, Any]:
    fit: MemoryFit = result.fit
    rank = fit.fullest
    return {
        "fits": fit.fits,
        "minimum_gpu_count": result.minimum_gpu_count,
        "usable_bytes_per_gpu": round(rank.usable_bytes),
        "weight_bytes_per_gpu": round(rank.weight_bytes),
        "activation_bytes_per_gpu": round(rank.activation_bytes),
        "runtime_bytes_per_gpu": round(rank.runtime_bytes),
        "reserved_bytes_per_gpu": round(rank.reserved_bytes),
        "kv_cache_budget_bytes_per_gpu": round(max(0.0, rank.budget_bytes)),
        "kv_cache_budget_plus_minus_bytes_per_gpu": round(rank.plus_minus_bytes),
        "graph_bytes_per_gpu": round(rank.graph_bytes),
        "overcommitted_bytes_per_gpu": round(rank.overcommitted_bytes),
        "kv_cache_bytes_per_token_per_gpu": round(fit.kv_cache_bytes_per_token),
        "state_bytes_per_sequence_per_gpu": round(fit.state_bytes_per_sequence),
        "kv_cache_capacity_tokens": fit.capacity_tokens,
        "max_concurrency": fit.max_concurrency,
        "max_context_tokens": fit.max_context_tokens,
        "shortfall_bytes_per_gpu": round(fit.shortfall_bytes),
        "engine": {
            "would_start": fit.would_start,
            "block_tokens": rank.pool.block_tokens,
            "block_count": rank.block_count,
            "reported_tokens": fit.reported_tokens,
            "reported_concurrency": fit.reported_concurrency,
            "block_bytes_per_gpu": rank.pool.block_bytes,
            "needed_bytes_per_gpu": fit.needed_bytes,
            "refusal": fit.refusal,
        },
        "ranks": [_rank(number, each) for number, each in enumerate(fit.ranks)],
        "sensitivity": [_pool_change(fit.smaller_pool), _pool_change(fit.larger_pool)],
    }


def _rank(number: int, rank: RankMemory) -> dict[str, Any]:
    return {
        "stage_index": number,
        "layer_count": rank.stage.end_layer - rank.stage.first_layer,
        "weight_bytes": round(rank.weight_bytes),
        "activation_bytes": round(rank.activation_bytes),
        "runtime_bytes": round(rank.runtime_bytes),
        "reserved_bytes": round(rank.reserved_bytes),
        "kv_cache_budget_bytes": round(max(0.0, rank.budget_bytes)),
        "block_count": rank.block_count,
    }


def _pool_change(change: PoolChange) -> dict[str, Any]:
    return {
        "pool_change_bytes": round(change.change_bytes),
        "reported_tokens": change.reported_tokens,
        "max_concurrency": change.max_concurrency,
    }


def _crossover(crossover: Crossover | None) -> dict[str, Any] | None:
    if crossover is None:
        return None
    return {
        "balance_point_flop_per_byte": crossover.balance_point_flop_per_byte,
        "arithmetic_intensity_flop_per_byte": crossover.arithmetic_intensity_flop_per_byte,
        "arithmetic_intensity_at_batch_flop_per_byte": crossover.arithmetic_intensity_at_batch_flop_per_byte,
        "weights_only_batch": crossover.weights_only_batch,
        "batch": _finite(crossover.batch),
        "attained_batch": _finite(crossover.attained_batch),
        "bound": crossover.bound._value_,
        "reason": crossover.reason,
        "operators": [
            {
                "name": each.name,
                "bound": each.bound._value_,
                "arithmetic_intensity_flop_per_byte": each.arithmetic_intensity_flop_per_byte,
            }
            for each in crossover.operators
        ],
    }


def _finite(value: float) -> float | None:
    """Inside, never is infinity; JSON says null."""
    return None if isinf(value) else value


def _terms(step: Step) -> list[dict[str, Any]]:
    return [
        {"name": name, "time_s": time_s, "spec_time_s": spec_time_s, "bound": bound._value_}
        for name, time_s, spec_time_s, bound, _ in step.terms
        if time_s > 0
    ]


def _prefill(reached: Speed) -> dict[str, Any]:
    step = reached.prefill
    faster = step.time_s / reached.prefill_time_s.value
    return {
        "time_s": estimate(reached.prefill_time_s),
        "physics_time_s": step.time_s,
        "input_tokens_per_s_per_gpu": estimate(reached.input_tokens_per_s_per_gpu),
        "bound": step.bound._value_,
        "arithmetic_intensity_flop_per_byte": step.arithmetic_intensity_flop_per_byte,
        "mfu": step.mfu * faster,
        "mbu": step.mbu * faster,
        "terms": _terms(step),
    }


def _decode(reached: Speed) -> dict[str, Any]:
    step = reached.step
    faster = step.time_s / reached.step_time_s.value
    return {
        "batch": reached.point.running,
        "step_time_s": estimate(reached.step_time_s),
        "physics_time_s": step.time_s,
        "single_user_tokens_per_s": estimate(reached.single_user_tokens_per_s),
        "bound": step.bound._value_,
        "mbu": step.mbu * faster,
        "mfu": step.mfu * faster,
        "terms": _terms(step),
    }


def _serving(reached: Speed) -> dict[str, Any]:
    return {
        "concurrency": reached.point.concurrency,
        "ttft_s": estimate(reached.ttft_s),
        "tpot_s": estimate(reached.tpot_s),
        "requests_per_s": estimate(reached.requests_per_s),
        "output_tokens_per_s": estimate(reached.output_tokens_per_s),
        "output_tokens_per_s_per_gpu": estimate(reached.output_tokens_per_s_per_gpu),
        "prefill_time_fraction": reached.point.prefill_time_fraction,
        "meets_target_probability": reached.meets_target_probability,
    }


def _energy(result: SizingResult) -> dict[str, Any]:
    rate = result.speed.output_tokens_per_s_per_gpu if result.speed else None
    at_target = result.at_target
    return {
        "scopes": [
            {
                "scope": each.scope._value_,
                "kind": each.kind._value_,
                "because": each.because,
                "power_w_per_gpu": estimate(each.power_w_per_gpu),
                "output_tokens_per_s_per_w": estimate(rate.per(each.power_w_per_gpu))
                if rate and each.power_w_per_gpu
                else None,
                "energy_j_per_output_token": estimate(each.power_w_per_gpu.per(rate))
                if rate and each.power_w_per_gpu
                else None,
            }
            for each in result.powers
        ],
        "at_target": {
            "concurrency": at_target.concurrency,
            "scope": at_target.scope._value_,
            "output_tokens_per_s_per_gpu": estimate(at_target.output_tokens_per_s_per_gpu),
            "output_tokens_per_s_per_w": estimate(at_target.output_tokens_per_s_per_w),
        }
        if at_target
        else None,
    }


def _cost(result: SizingResult) -> dict[str, Any] | None:
    cost = result.cost
    if cost is None:
        return None
    return {
        "usd_per_input_token": estimate(cost.usd_per_input_token),
        "usd_per_cached_input_token": estimate(cost.usd_per_cached_input_token),
        "usd_per_output_token": estimate(cost.usd_per_output_token),
        "usd_per_h_per_replica": estimate(cost.usd_per_h_per_replica),
        "usd_per_h_total": estimate(cost.usd_per_h_total),
        "allocation": cost.allocation._value_,
    }


def _wide_intervals(reached: Speed) -> list[dict[str, str]]:
    """One warning that names every estimate whose interval is wider than its value."""
    wide = [
        name
        for name, each in (
            ("prefill.time_s", reached.prefill_time_s),
            ("decode.step_time_s", reached.step_time_s),
            ("serving.ttft_s", reached.ttft_s),
            ("serving.tpot_s", reached.tpot_s),
            ("serving.requests_per_s", reached.requests_per_s),
        )
        if each is not None and each.high - each.low > each.value
    ]
    if not wide:
        return []
    detail = f"{', '.join(wide)}: the interval is wider than the value, for want of measurements near it"
    return [{"code": WarningCode.INTERVAL_WIDER_THAN_ANSWER.value, "detail": detail}]
