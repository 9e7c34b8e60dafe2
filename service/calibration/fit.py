"""Refits the global numbers of the physics to measured runs: least squares on log errors, robust, with priors.

Needs SciPy (the extra ``calibration``). Bounds are physical: nothing reads faster than its printed bandwidth by more
than a few percent, and prefill stalls decode about once. Where evidence is thin they matter: without them, leaving one
model out tripled the share of prefill that stalls SGLang.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.catalogue.benchmark_evidence import Measurement
from service.errors import ServiceError
from service.sizing.run_identity import QUARANTINE
from service.sizing.run_terms import PHASES, Phase, RunTerms, stacked
from service.sizing.run_time import FITTED_VALUES, run_time

Array = NDArray[np.float64]

LOSS_SCALE = 0.15  # of log errors: beyond, an error counts linearly
PRIOR_WEIGHT = 1.0  # cross-validated: at 0.15 a left-out accelerator moved numbers that only it had held
GROUP_EXPONENT = -0.25  # rows of a crowded group count less
SERVING_WEIGHT = 3.0  # answers are about serving; cross-validated: 9.4 to 9.1 % on accelerators, 5 gains no more
MOST_EVALUATIONS = 30
STEP = 1e-4


class Prior(NamedTuple):
    """Of ln(value): its centre's value and standard deviation, and the bounds of the value."""

    start: float
    sd: float
    low: float = 1e-9
    high: float = 1e3


EFFICIENCY = (0.98, 10.0)

RATE_PRIORS: Mapping[str, Prior] = {
    "weights": Prior(1.1, 0.005, *EFFICIENCY),
    "kv_cache": Prior(1.3, 0.3, *EFFICIENCY),
    "flop": Prior(1.5, 0.4, *EFFICIENCY),
    "low_precision_exponent": Prior(0.8, 0.2, 0.3, 1.0),
    "expert_weights": Prior(1.3, 0.4, *EFFICIENCY),
    "expert_flop": Prior(1.2, 0.3, *EFFICIENCY),
    "communication": Prior(2.0, 0.5, *EFFICIENCY),
    "layer_overhead_s": Prior(5e-5, 0.5),
    "layer_overhead_vllm": Prior(1.2, 0.3, 0.5, 3.0),
    "layer_overhead_sglang": Prior(1.2, 0.1, 0.5, 3.0),
    "layer_overhead_latent": Prior(1.3, 0.3, 0.7, 4.0),
    "layer_overhead_llama_cpp": Prior(1.2, 2.0, 0.2, 5.0),
    "prefill": Prior(1.6, 0.4, *EFFICIENCY),
    "prefill_communication": Prior(1.5, 0.5, *EFFICIENCY),
    "prefill_llama_cpp": Prior(1.5, 2.0, 0.98, 10.0),
    "prefill_llama_cpp_hip": Prior(1.0, 0.5, 0.2, 5.0),
    "prefill_llama_cpp_vulkan": Prior(1.0, 0.5, 0.2, 5.0),
    "prefill_vector_attention_llama_cpp": Prior(30.0, 1.0, 1.0, 300.0),
    "sequence_s": Prior(5e-6, 0.7),
    "stall_tensorrt_llm": Prior(1.0, 0.2, 0.2, 1.1),
    "stall_vllm": Prior(1.0, 0.2, 0.2, 1.1),
    "stall_sglang": Prior(0.6, 0.5, 0.2, 1.1),
    "drafted_step": Prior(0.7, 0.3, 0.3, 1.0),
    "engine_age_exponent_per_year": Prior(0.05, 3.0, 1e-3, 1.0),
    "prefill_fill_exponent_llama_cpp": Prior(0.3, 0.5, 0.01, 1.0),
    "prefill_score_passes_llama_cpp": Prior(8.0, 0.3, 1.0, 20.0),
    "prefill_pipeline_llama_cpp": Prior(1.2, 0.2, *EFFICIENCY),
    "overhead_bandwidth_exponent": Prior(0.2, 0.7, 1e-3, 1.0),
}
TTFT_PRIORS: Mapping[str, Prior] = {
    "ttft_request_s_tensorrt_llm": Prior(0.07, 0.7),
    "ttft_request_s_vllm": Prior(0.05, 0.7),
    "ttft_request_s_sglang": Prior(0.2, 0.7),
    "ttft_own_prefill": Prior(1.0, 0.3),
    "ttft_steps": Prior(5.0, 0.5),
    "ttft_queue_tensorrt_llm": Prior(0.1, 0.7),
    "ttft_queue_vllm": Prior(0.1, 0.7),
    "ttft_queue_sglang": Prior(0.4, 0.7),
}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Measurements as arrays. ``weights`` even out groups of many like rows, and count serving above the rest."""

    terms: RunTerms
    log_measured: Array
    weights: Array

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Sample":
        groups = [_group(each) for each in measurements]
        sizes = {group: groups.count(group) for group in set(groups)}
        return cls(
            stacked(each.terms for each in measurements),
            np.log([each.value_s for each in measurements]),
            np.array([_weight(each, sizes[group]) for each, group in zip(measurements, groups, strict=True)]),
        )

    def only(self, kept: NDArray[np.bool_]) -> "Sample":
        terms = RunTerms(**{each.name: getattr(self.terms, each.name)[kept] for each in fields(RunTerms)})
        return Sample(terms, self.log_measured[kept], self.weights[kept])


def _weight(measurement: Measurement, group_size: int) -> float:
    weight = SERVING_WEIGHT if measurement.configuration.phase is Phase.SERVING else 1.0
    return float(weight * group_size**GROUP_EXPONENT)


def _group(measurement: Measurement) -> tuple[object, ...]:
    c = measurement.configuration
    return c.accelerator, c.architecture, c.engine, c.weight_class, c.phase


class RefitNeedsScipy(ServiceError):
    code = "refit_needs_scipy"
    title = "A refit needs SciPy"

    def __init__(self) -> None:
        super().__init__("a refit needs SciPy: python3 bootstrap.py --dev, or install the extra `calibration`")


@dataclass(frozen=True, slots=True)
class Fit:
    """Every number, the refitted ones replaced; standard errors are of ln(value)."""

    numbers: Mapping[str, float]
    standard_errors: Mapping[str, float]


def refit(
    sample: Sample, start: Mapping[str, float] = FITTED_VALUES, *, most_evaluations: int = MOST_EVALUATIONS
) -> Fit:
    """Rates first, on every phase but TTFT; then TTFT's own numbers with those held.

    Disaggregated runs move no number: nearly all are of one model.
    """
    sample = sample.only(~quarantined(sample))
    phase = np.asarray(sample.terms.phase)
    is_ttft, is_disaggregated = (phase == PHASES.index(each) for each in (Phase.TTFT, Phase.DISAGGREGATED))
    rates = _refit(sample.only(~is_ttft & ~is_disaggregated), start, RATE_PRIORS, most_evaluations)
    if not is_ttft.any():
        return rates
    ttft = _refit(sample.only(is_ttft), rates.numbers, TTFT_PRIORS, most_evaluations)
    return Fit(ttft.numbers, {**rates.standard_errors, **ttft.standard_errors})


def quarantined(sample: Sample) -> NDArray[np.bool_]:
    """Rows so far off the shipped numbers that they say more about the record than about the machine."""
    limits = np.array([QUARANTINE[phase] for phase in PHASES])[sample.terms.phase]
    return np.asarray(np.abs(sample.log_measured - np.log(run_time(sample.terms).time_s)) > limits)


def _refit(sample: Sample, start: Mapping[str, float], priors: Mapping[str, Prior], most_evaluations: int) -> Fit:
    try:
        from scipy.optimize import least_squares  # noqa: PLC0415  an extra: only the refit needs it
    except ImportError:
        raise RefitNeedsScipy from None
    names = list(priors)
    root_weights = np.sqrt(sample.weights)
    centre = np.log([priors[name].start for name in names])
    spread = np.array([priors[name].sd for name in names])
    low, high = (np.log([getattr(priors[name], end) for name in names]) for end in ("low", "high"))

    def errors(logs: Array) -> Array:
        numbers = {**start, **dict(zip(names, np.exp(logs).tolist(), strict=True))}
        missed = sample.log_measured - np.log(run_time(sample.terms, numbers).time_s)
        return np.concatenate([root_weights * missed, PRIOR_WEIGHT * (logs - centre) / spread])

    def slopes(logs: Array) -> Array:
        here = errors(logs)
        return np.stack([(errors(logs + STEP * unit) - here) / STEP for unit in np.eye(len(names))], -1)

    first = np.clip(np.log([start[name] for name in names]), low + 1e-6, high - 1e-6)
    found = least_squares(
        errors,
        first,
        slopes,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
        max_nfev=most_evaluations,
        ftol=1e-5,
    )
    variance = 2 * found.cost / max(1, len(sample.log_measured) - len(names))
    slope: Array = np.asarray(found.jac, dtype=np.float64)
    covariance = np.linalg.pinv(slope.T @ slope) * variance
    return Fit(
        {**start, **dict(zip(names, np.exp(found.x).tolist(), strict=True))},
        dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
    )
