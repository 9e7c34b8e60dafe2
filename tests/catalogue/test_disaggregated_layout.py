from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from service.catalogue.benchmark_evidence import Measurement, measurements
from service.catalogue.benchmark_facts import PublishedRun, published_runs
from service.catalogue.disaggregated_layout import pools_of
from service.sizing.disaggregated import WorkerPool
from service.sizing.parallelism import Parallelism
from service.sizing.run_terms import Phase
from tests.sizing.examples import shipped


def test_a_layout_names_the_workers_of_both_pools() -> None:
    pools = pools_of("P4xTP1.DP4/D1xTP8.DP4", is_moe=True)
    assert pools is not None
    assert pools.prefill == WorkerPool(4, Parallelism(tp=1, ep=4, dp=4))  # data-parallel attention, experts over all
    assert pools.decode == WorkerPool(1, Parallelism(tp=8, ep=32, dp=4))


def test_experts_stay_with_tensor_parallelism_and_dense_models_have_none() -> None:
    moe, dense = pools_of("P1xTP4/D2xTP8.DP1", is_moe=True), pools_of("P2xTP1.DP4/D1xTP1.DP8", is_moe=False)
    assert moe is not None
    assert dense is not None
    assert moe.decode == WorkerPool(2, Parallelism(tp=8))
    assert dense.prefill == WorkerPool(2, Parallelism(dp=4))


@pytest.mark.parametrize(
    "text", [None, "", "8", "P8/D16 GPUs", "P0xTP1/D1xTP1", "P1xTP1/D1xTP1 or so", "P1xTP99999/D1xTP1"]
)
def test_other_texts_are_no_layout(text: str | None) -> None:
    assert pools_of(text, is_moe=True) is None


def disaggregated(**stated: Any) -> PublishedRun:
    """A published run of DeepSeek-R1 on a GB200 rack, with other figures."""
    run = next(
        run
        for run in published_runs()
        if run.tp == "P1xTP1.DP4/D4xTP8.DP1" and run.model == "DeepSeek-R1" and run.flag is None
    )
    return replace(run, source="a user's run", osl_tokens=1001.0, **stated)


def decode_of(run: PublishedRun) -> Measurement:
    (found,) = measurements([run], shipped()).usable
    return found


def test_a_disaggregated_run_measures_the_step_of_a_decode_worker_at_the_batch_that_it_had() -> None:
    # 1,000 gaps of 10 ms after 5 s: requests spend two thirds of their time in decode, 80 of 120, 20 on each worker
    found = decode_of(disaggregated(concurrency=120.0, tpot_s=0.010, ttft_s=5.0))
    assert (found.setup.phase, found.value_s) == (Phase.DISAGGREGATED, 0.010)
    assert found.setup.parallelism == Parallelism(tp=8)
    assert found.setup.batch == pytest.approx(120 * (10 / 15) / 4)
    assert found.configuration.device_count == 8


def test_without_its_workers_or_concurrency_a_disaggregated_run_is_left_out_with_the_reason() -> None:
    unknown = [disaggregated(tp="P8/D16 GPUs"), disaggregated(concurrency=None)]
    found = measurements(unknown, shipped())
    assert found.usable == ()
    assert Counter(found.left_out) == {"workers or concurrency of a disaggregated system not stated": 2}
