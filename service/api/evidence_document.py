"""What estimates lean on, as answers name it: stored runs with their weights, and what to measure next."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from service.catalogue.live_evidence import run_id_of
from service.sizing.neighbourhood import Lean
from service.sizing.next_measurement import Experiment, NextMeasurement, next_measurement
from service.sizing.run_terms import Phase
from service.sizing.speed import Speed

ESTIMATES: Final[Mapping[Phase, str]] = {
    Phase.SERVING: "serving.tpot_s",
    Phase.TTFT: "serving.ttft_s",
    Phase.SINGLE_STREAM: "decode.single_user_tokens_per_s",
    Phase.PREFILL: "prefill.time_s",
    Phase.DISAGGREGATED: "serving.tpot_s",
}
# What a run of each phase measured, as a time.
MEASURES: Final[Mapping[Phase, str]] = {
    Phase.SERVING: "tpot_s",
    Phase.SINGLE_STREAM: "tpot_s",
    Phase.STATIC_BATCH: "token_time_s",
    Phase.OFFLINE: "output_token_time_s",
    Phase.PREFILL: "ttft_s",
    Phase.TTFT: "ttft_s",
    Phase.DISAGGREGATED: "tpot_s",
}


def evidence_document(reached: Speed | None, *, revision: int | None) -> dict[str, Any]:
    """Of an answer without speeds: nothing is leant on. No measurement of one pool narrows that of a whole system."""
    if reached is None or revision is None:
        return {"distance_fraction": 1.0, "revision": revision, "estimates": [], "runs": [], "next_measurement": None}
    beliefs = reached.beliefs
    is_disaggregated = Phase.DISAGGREGATED in beliefs
    about_tpot = beliefs[Phase.DISAGGREGATED if is_disaggregated else Phase.SERVING]
    return {
        "distance_fraction": about_tpot.distance,
        "revision": revision,
        "estimates": [
            {
                "estimate": ESTIMATES[phase],
                "distance_fraction": belief.distance,
                "noise_floor_fraction": belief.noise_floor,
            }
            for phase, belief in beliefs.items()
        ],
        "runs": [run for phase, belief in beliefs.items() for run in leant_on(ESTIMATES[phase], belief.leans_on)],
        "next_measurement": None if is_disaggregated else _next(next_measurement(beliefs), reached),
    }


def leant_on(estimate: str, runs: Iterable[Lean]) -> list[dict[str, Any]]:
    found = []
    for run, phase, weight, measured_s, predicted_s in runs:
        measure = MEASURES[phase]
        found.append(
            {
                "estimate": estimate,
                "benchmark_run": run_id_of(run),
                "phase": phase._value_,
                "weight_fraction": weight,
                "measured": {measure: measured_s},
                "predicted": {measure: predicted_s},
            }
        )
    return found


def _next(found: NextMeasurement | None, reached: Speed) -> dict[str, Any] | None:
    if found is None:
        return None
    load = reached.load
    return {
        "scenario": found.experiment.value,
        "concurrency": reached.point.running if found.experiment is Experiment.CLOSED_LOOP else 1,
        "isl_tokens": load.isl_tokens,
        "osl_tokens": None if found.experiment is Experiment.PREFILL else load.osl_tokens,
        "metrics": [MEASURES[each.phase] for each in found.narrows],
        "narrows": [
            {
                "estimate": ESTIMATES[each.phase],
                "interval_width_fraction": each.factor - 1 / each.factor,
                "expected_interval_width_fraction": each.factor_then - 1 / each.factor_then,
            }
            for each in found.narrows
        ],
    }
