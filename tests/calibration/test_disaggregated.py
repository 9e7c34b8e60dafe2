"""Whole disaggregated systems predicted from other runs."""

from dataclasses import replace

import numpy as np
import pytest

from service.calibration.disaggregated import (
    AGGREGATED_ONLY,
    SERIES,
    Errors,
    Missed,
    System,
    cross_validate_disaggregated,
    disaggregated_table,
    not_modelled,
)
from service.catalogue.benchmark_evidence import Measurement, measurements
from service.catalogue.benchmark_facts import published_runs
from service.sizing.costs import compute_rates, device_of, step_costs
from service.sizing.decode import decode_curve
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density
from service.sizing.prefill import prompt_share_s
from service.sizing.run_terms import Phase
from service.sizing.run_time import FITTED_VALUES, run_time
from service.sizing.step import layer_overhead_s
from service.sizing.weights import served_weights
from tests.sizing.examples import shipped


@pytest.fixture(scope="module")
def rows() -> tuple[Measurement, ...]:
    return measurements(published_runs(), shipped()).usable


@pytest.fixture(scope="module")
def missed(rows: tuple[Measurement, ...]) -> list[Missed]:
    return cross_validate_disaggregated(rows, refits=False)


def system_of(rows: tuple[Measurement, ...]) -> System:
    """TensorRT-LLM on GB200, new enough that its age adds nothing, without drafting."""
    return next(
        system
        for row in rows
        if row.setup.phase is Phase.DISAGGREGATED
        and row.setup.engine == "TensorRT-LLM"
        and not row.setup.engine_age_years
        and not row.setup.is_drafted
        and (system := System.of(row)) is not None
    )


def test_prompt_and_step_are_those_that_answer_a_question(rows: tuple[Measurement, ...]) -> None:
    system = system_of(rows)
    setup, device = system.measurement.setup, device_of(system.measurement.setup.accelerator)
    weights = served_weights(setup.model, setup.scheme)
    rates = compute_rates(device, weights=weights, asked=None, density=Density.DENSE)
    decode_costs, prefill_costs = (
        step_costs(
            model=setup.model,
            weights=weights,
            device=device,
            parallelism=pool.parallelism,
            kv_cache=setup.kv_cache,
            rates=rates,
        )
        for pool in (system.pools.decode, system.pools.prefill)
    )
    parameters = StepParameters.fitted("tensorrt-llm")
    curve = decode_curve(decode_costs, parameters, context_tokens=setup.isl_tokens + setup.osl_tokens / 2)
    assert run_time(system.steps).time_s == pytest.approx(curve.time_s(np.asarray(system.steps.batch)))
    share_s = prompt_share_s(prefill_costs, parameters, prompt_tokens=setup.isl_tokens)
    latency_s = share_s * prefill_costs.dp + layer_overhead_s(prefill_costs, parameters)
    # With next to nothing in flight no prompt is ahead: a request waits for handling, its prompt and five steps.
    alone = replace(system, concurrency=1e-9)
    step_s = float(curve.time_s(1.0))
    assert alone.at(run_time(system.steps).time_s, FITTED_VALUES).ttft_s == pytest.approx(0.10 + latency_s + 5 * step_s)


def test_every_modelled_system_is_left_out_in_each_tier(rows: tuple[Measurement, ...], missed: list[Missed]) -> None:
    modelled = sum(row.setup.phase is Phase.DISAGGREGATED for row in rows)
    counts = {
        name: sum(each.left_out == name for each in missed)
        for name in (SERIES, "accelerator", "model", AGGREGATED_ONLY)
    }
    assert set(counts.values()) == {modelled}


def test_a_new_sweep_is_predicted_within_the_bars(missed: list[Missed]) -> None:
    """7 % of TPOT and 10 % of throughput per GPU, in the median."""
    series = [each.kriged for each in missed if each.left_out == SERIES]
    assert np.median([each.tpot for each in series]) < 0.07
    assert np.median([each.output_rate for each in series if each.output_rate is not None]) < 0.10


def test_aggregated_runs_alone_are_enough_for_a_useful_answer(missed: list[Missed]) -> None:
    """No bar of the product: 12 % before the 19 systems of Kimi-K2.5 could be modelled, all faster than predicted."""
    unseen = [each.kriged for each in missed if each.left_out == AGGREGATED_ONLY]
    assert np.median([each.tpot for each in unseen]) < 0.14


def test_a_table_shows_medians_in_percent_and_what_is_not_stated() -> None:
    def one(tpot: float) -> Missed:
        errors = Errors(tpot=tpot, output_rate=2 * tpot, ttft=None)
        return Missed(SERIES, "gb200-nvl72", waited=True, kriged=errors, by_physics=errors, is_inside=tpot < 0.1)

    # errors of 4, 6 and 20 %: the median is 6, the 90th percentile 6 + 0.8 * 14 = 17.2
    lines = disaggregated_table([one(0.04), one(0.06), one(0.2)]).splitlines()
    assert lines[2].startswith("| series | 3 | 6.0 / 17 | 12.0 / 34 | not stated |")
    assert lines[2].endswith("| 0.67 |")
    assert lines[3].startswith("| series: gb200-nvl72 |")  # none of them hardly waited


def test_what_cannot_be_modelled_says_why() -> None:
    reasons = not_modelled(published_runs(), shipped())
    assert reasons["worker counts missing: per-GPU throughput not derivable"] == 430
    runs = [run for run in published_runs() if "disaggregated" in run.scenario]
    modelled = measurements(runs, shipped()).usable
    assert sum(reasons.values()) + len(modelled) == len(runs) == 608
