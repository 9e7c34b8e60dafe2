"""The closed loop over two pools, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sizing.disaggregated import (
    DisaggregatedSystem,
    Handover,
    Pools,
    PrefillPool,
    WorkerPool,
)
from service.sizing.parallelism import Parallelism

NOTHING_WAITED = Handover(slowdown=1.0, request_s=0.0, step_count=0.0, queue_fraction=0.0)
FAST = PrefillPool(prompts_per_s=1e6, prompt_latency_s=0.0)


def constant_step(_batch: float) -> float:
    return 0.01


def growing_step(batch: float) -> float:
    return 0.01 * (1 + batch / 10)


def test_an_unsaturated_system_follows_littles_law() -> None:
    system = DisaggregatedSystem(
        prefill=PrefillPool(prompts_per_s=1e6, prompt_latency_s=0.05),
        decode_worker_count=5,
        step_time_s=constant_step,
        handover=Handover(slowdown=1.0, request_s=0.1, step_count=5.0, queue_fraction=0.0),
        osl_tokens=101,
    )
    point = system.at(12)
    # 100 steps of 10 ms in decode, and before them 100 ms of handling, a prompt of 50 ms and 5 steps: 1.0 + 0.2 s
    assert point.tpot_s == 0.01
    assert point.requests_per_s == pytest.approx(12 / 1.2)
    assert point.ttft_s == pytest.approx(0.2)
    assert point.decode_batch == pytest.approx(10 * 1.0 / 5)  # of 5 workers
    assert point.output_tokens_per_s_per_gpu(osl_tokens=101, gpu_count=20) == pytest.approx(10 * 101 / 20)


def test_a_saturated_prefill_pool_gives_its_own_rate() -> None:
    system = DisaggregatedSystem(
        prefill=PrefillPool(prompts_per_s=2.0, prompt_latency_s=0.5),
        decode_worker_count=1,
        step_time_s=constant_step,
        handover=NOTHING_WAITED,
        osl_tokens=101,
    )
    point = system.at(1000)
    assert point.requests_per_s == pytest.approx(2.0)
    assert point.decode_batch == pytest.approx(2.0 * 1.0)  # in decode for 1 s
    assert point.ttft_s == pytest.approx(1000 / 2.0 - 1.0)  # the rest of the 500 s of a cycle


def test_the_decode_batch_is_the_one_that_its_own_step_leads_to() -> None:
    # Prompts come at 5 /s; b = 5 * 100 * step(b) = 5 (1 + b / 10), so b = 10 and a step takes 20 ms.
    system = DisaggregatedSystem(
        prefill=PrefillPool(prompts_per_s=5.0, prompt_latency_s=0.2),
        decode_worker_count=1,
        step_time_s=growing_step,
        handover=NOTHING_WAITED,
        osl_tokens=101,
    )
    point = system.at(10_000)
    assert point.decode_batch == pytest.approx(10)
    assert point.tpot_s == pytest.approx(0.02)


def test_a_limit_on_the_decode_batch_keeps_requests_waiting() -> None:
    system = DisaggregatedSystem(FAST, 5, growing_step, NOTHING_WAITED, osl_tokens=101, decode_max_batch=10)
    # 5 workers of 10 sequences at 20 ms: R = 2 s and 25 requests/s; 200 in flight wait for (200 / 50 - 1) R.
    point = system.at(200)
    assert point.decode_batch == pytest.approx(10)
    assert point.requests_per_s == pytest.approx(50 / 2.0)
    assert point.ttft_s == pytest.approx((200 / 50 - 1) * 2.0)
    assert point.waiting_s == pytest.approx(point.ttft_s)  # nothing else takes time before decode


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    without = DisaggregatedSystem(FAST, 2, growing_step, NOTHING_WAITED, osl_tokens=101)
    limited = DisaggregatedSystem(FAST, 2, growing_step, NOTHING_WAITED, osl_tokens=101, decode_max_batch=512)
    # Nothing but decode takes time, so each worker has half of the requests: 10, and 20 ms a step.
    assert limited.at(20) == without.at(20)
    assert limited.at(20).waiting_s == 0
    assert limited.at(20).decode_batch == pytest.approx(10)
    assert limited.at(20).requests_per_s == pytest.approx(20 / 2.0)


def test_with_one_output_token_nothing_is_decoded() -> None:
    system = DisaggregatedSystem(
        PrefillPool(prompts_per_s=1e6, prompt_latency_s=0.5), 1, growing_step, NOTHING_WAITED, osl_tokens=1
    )
    point = system.at(4)
    assert point.tpot_s is None
    assert point.decode_batch == pytest.approx(0.0)
    assert point.ttft_s == pytest.approx(0.5)
    assert point.requests_per_s == pytest.approx(4 / 0.5)


@given(
    concurrency=st.integers(1, 20_000),
    prompts_per_s=st.floats(0.1, 1e4),
    workers=st.integers(1, 32),
    limit=st.none() | st.integers(1, 512),
)
def test_no_request_is_lost_between_the_pools(
    concurrency: int, prompts_per_s: float, workers: int, limit: int | None
) -> None:
    system = DisaggregatedSystem(
        prefill=PrefillPool(prompts_per_s, prompt_latency_s=0.3),
        decode_worker_count=workers,
        step_time_s=growing_step,
        handover=Handover(slowdown=1.0, request_s=0.1, step_count=5.0, queue_fraction=0.1),
        osl_tokens=501,
        decode_max_batch=limit,
    )
    point = system.at(concurrency)
    assert point.tpot_s is not None
    decode_s = 500 * point.tpot_s
    assert point.requests_per_s <= prompts_per_s
    assert point.requests_per_s * (point.ttft_s + decode_s) == pytest.approx(concurrency)  # Little's law over both
    assert point.requests_per_s * decode_s / workers == pytest.approx(point.decode_batch)  # and over decode


def test_prompts_are_read_side_by_side_by_the_ranks_of_a_worker() -> None:
    # A prompt takes 0.1 s of a worker of 4 ranks, so 0.4 s of its rank, and 0.1 s of launches: in 0.5 s each of the 2
    # workers reads 4.
    pool = PrefillPool.of(WorkerPool(2, Parallelism(dp=4)), prompt_share_s=0.1, layer_overhead_s=0.1)
    assert pool.prompt_latency_s == pytest.approx(0.5)
    assert pool.prompts_per_s == pytest.approx(2 * 4 / 0.5)


def test_a_system_counts_the_devices_of_both_pools() -> None:
    pools = Pools(WorkerPool(4, Parallelism(dp=4)), WorkerPool(1, Parallelism(tp=8, dp=4)))
    assert (pools.prefill.device_count, pools.decode.device_count, pools.device_count) == (16, 32, 48)
