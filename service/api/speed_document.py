"""How fast it is, and where decode stops being memory-bound, as the answer of ``POST /sizing`` writes it."""

from math import isinf
from typing import Any

from service.api.estimate_document import estimate
from service.sizing.crossover import Crossover
from service.sizing.remarks import WarningCode
from service.sizing.speed import Speed
from service.sizing.step import Step


def crossover_document(crossover: Crossover | None) -> dict[str, Any] | None:
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


def prefill_document(reached: Speed) -> dict[str, Any]:
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


def decode_document(reached: Speed) -> dict[str, Any]:
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


def serving_document(reached: Speed) -> dict[str, Any]:
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


def wide_intervals(reached: Speed) -> list[dict[str, str]]:
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
