"""The closed loop, its intervals and the target, by hand."""

from dataclasses import replace
from itertools import pairwise
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sizing.estimate import Estimate, probability_at_most
from service.sizing.evidence import WIDTH_FACTORS, sd_without_runs
from service.sizing.parallelism import Parallelism
from service.sizing.parameters import NORMAL_QUANTILE_90, Tail
from service.sizing.plan import SizingResult
from service.sizing.question import EngineAsked, WorkloadAsked
from service.sizing.remarks import WarningCode
from service.sizing.run_terms import Phase
from service.sizing.serving import largest_concurrency
from service.sizing.speed import Speed
from service.sizing.workload import Length, Statistic, Target
from tests.sizing.examples import answer, warning_codes


def speed_of(result: SizingResult) -> Speed:
    assert result.speed is not None
    return result.speed


def llama_8b(workload: WorkloadAsked, **asked: object) -> SizingResult:
    return answer("llama-3.1-8b-instruct", "h100-sxm", workload=workload, **asked)


# Variances of the kernels' components by hand: 0.04984 of rates and 0.49745 of TTFT, noise included.
NO_RUNS_SD = {
    Phase.SERVING: 0.22325 * WIDTH_FACTORS[Phase.SERVING][-1],
    Phase.PREFILL: 0.22325 * WIDTH_FACTORS[Phase.PREFILL][-1],
    Phase.TTFT: 0.70530 * WIDTH_FACTORS[Phase.TTFT][-1],
}


@pytest.mark.parametrize("phase", NO_RUNS_SD)
def test_physics_alone_is_as_sure_as_a_store_without_runs(phase: Phase) -> None:
    assert sd_without_runs("NVIDIA data centre", phase) == pytest.approx(NO_RUNS_SD[phase], rel=1e-4)
    assert sd_without_runs("Google", Phase.SERVING) == pytest.approx(3.5 * NO_RUNS_SD[Phase.SERVING], rel=1e-4)


def test_the_closed_loop_by_hand() -> None:
    speed = speed_of(llama_8b(WorkloadAsked(Length(1000), Length(200), concurrency=16)))
    point, step_s = speed.point, speed.point.step_time_s
    # One prompt of 1,000 tokens on one H100: matrices of 32 layers (no embedding, no head) and attention over 500
    # tokens on average, at 989.5 TFLOP/s, over 1 / 1.29.
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    prompt_s = 1.29 * 1000 * (2 * 32 * layer + 2 * 32 * 32 * 256 * 500) / 989.5e12
    tpot_s = step_s + 0.867 * 16 / 200 * prompt_s
    ttft_s = 0.0153 + 0.943 * prompt_s + 5.97 * step_s + 0.112 * 16 * prompt_s
    assert point.tpot_s == pytest.approx(tpot_s)
    assert point.ttft_s == pytest.approx(ttft_s)
    assert point.requests_per_s == pytest.approx(16 / (ttft_s + 199 * tpot_s))
    # Of one cycle of 16 requests, the prompts take 16 prompt_s and the steps 200 step_s.
    assert point.prefill_time_fraction == pytest.approx(16 * prompt_s / (16 * prompt_s + 200 * step_s))
    assert speed.output_tokens_per_s.value == pytest.approx(200 * point.requests_per_s)


def test_requests_beyond_what_runs_at_once_wait_their_turn() -> None:
    engine = EngineAsked(max_num_seqs=32)
    full = speed_of(llama_8b(WorkloadAsked(Length(1000), Length(200), concurrency=32), engine=engine)).point
    result = llama_8b(WorkloadAsked(Length(1000), Length(200), concurrency=64), engine=engine)
    queued = speed_of(result).point
    assert WarningCode.REQUESTS_QUEUE in warning_codes(result)
    assert queued.running == 32
    assert queued.tpot_s == full.tpot_s
    # The second 32 wait for the residence of the first.
    assert full.tpot_s is not None
    assert queued.ttft_s == pytest.approx(full.ttft_s + (64 / 32 - 1) * (full.ttft_s + 199 * full.tpot_s))
    assert queued.requests_per_s == pytest.approx(full.requests_per_s)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("osl", [1, 2, 10, 1000])
def test_no_load_is_served_faster_than_the_arithmetic_of_its_prompts_allows(engine: str, osl: int) -> None:
    rates = []
    for concurrency in (1, 16, 128, 512):
        result = llama_8b(WorkloadAsked(Length(4096), Length(osl), concurrency), engine=EngineAsked(name=engine))
        speed = speed_of(result)
        # 2 FLOP for each of 6,979,321,856 parameters of the 32 layers' matrices, 4,096 tokens, at 989.5 TFLOP/s.
        assert speed.point.requests_per_s <= 989.5e12 / (2 * 6_979_321_856 * 4096)
        assert 0 < speed.point.prefill_time_fraction < 1
        rates.append(speed.point.requests_per_s)
    assert all(more >= fewer * (1 - 1e-9) for fewer, more in pairwise(rates))


def test_waiting_for_a_place_is_as_uncertain_as_the_tpot_before_it() -> None:
    engine = EngineAsked(max_num_seqs=8)
    speed = speed_of(llama_8b(WorkloadAsked(Length(1000), Length(200), 80_000), engine=engine))
    assert speed.ttft_s.high / speed.ttft_s.value == pytest.approx(
        exp(NORMAL_QUANTILE_90 * NO_RUNS_SD[Phase.SERVING]), rel=0.01
    )
    assert speed.requests_per_s.coverage_fraction is None


def test_a_request_rate_is_served_by_the_smallest_concurrency_that_reaches_it() -> None:
    speed = speed_of(llama_8b(WorkloadAsked(Length(1000), Length(200), request_rate_per_s=5.0)))
    assert speed.point.requests_per_s >= 5.0
    fewer = WorkloadAsked(Length(1000), Length(200), concurrency=speed.point.concurrency - 1)
    assert speed_of(llama_8b(fewer)).point.requests_per_s < 5.0


def test_a_rate_beyond_one_replica_is_said_so() -> None:
    result = llama_8b(WorkloadAsked(Length(1000), Length(200), request_rate_per_s=1e6))
    assert WarningCode.RATE_NOT_SUSTAINED in warning_codes(result)
    speed = speed_of(result)
    assert speed.point.concurrency == speed.full_concurrency


def test_without_a_load_the_largest_that_meets_the_target_is_taken() -> None:
    target = Target(tpot_s=0.02)
    workload = WorkloadAsked(Length(1000), Length(200))
    speed = speed_of(llama_8b(workload, target=target))
    assert speed.point.tpot_s is not None
    assert speed.point.tpot_s <= 0.02
    more = replace(workload, concurrency=speed.point.concurrency + 1)
    beyond = speed_of(llama_8b(more, target=target)).point.tpot_s
    assert beyond is not None
    assert beyond > 0.02
    assert speed.at_target is not None
    assert speed.at_target.concurrency == speed.point.concurrency


def test_a_target_that_one_request_misses_has_no_point_at_target() -> None:
    result = llama_8b(WorkloadAsked(), target=Target(tpot_s=1e-6))
    assert speed_of(result).at_target is None
    assert speed_of(result).point.concurrency == 1
    assert not result.verdict.interactive.suits


@pytest.mark.parametrize(("max_num_seqs", "said"), [(1, "with 1 request at once"), (8, "with 8 requests at once")])
def test_the_verdict_on_batch_work_says_how_many_run_together(max_num_seqs: int, said: str) -> None:
    batch = llama_8b(WorkloadAsked(), engine=EngineAsked(max_num_seqs=max_num_seqs)).verdict.batch
    assert batch.because.startswith(f"{said}, the most that run together, a decode step spends ")
    assert "batch work wants less than 0.50" in batch.because
    assert (
        not batch.suits
    )  # eight sequences read the weights of 16 GB together, and their own caches of 2 x 128 kB x 1,536


def test_one_output_token_has_no_time_per_output_token() -> None:
    speed = speed_of(llama_8b(WorkloadAsked(Length(1000), Length(1), concurrency=4)))
    assert speed.tpot_s is None
    assert speed.point.requests_per_s == pytest.approx(4 / speed.point.ttft_s)


def test_meeting_a_target_is_a_probability_of_the_interval() -> None:
    # A limit at the high end of an 80 % interval is kept with 90 %, at the median with 50 %.
    sd = 0.3
    assert probability_at_most(0.02 * exp(1.2816 * sd), median=0.02, sd=sd) == pytest.approx(0.9, abs=1e-4)
    assert probability_at_most(0.02, median=0.02, sd=sd) == pytest.approx(0.5)


def test_a_percentile_is_harder_to_keep_than_the_median() -> None:
    # The 99th percentile lies at twice the median with a spread of its own of 0.3.
    tail = Tail(2.0, 0.3)
    assert probability_at_most(0.04, median=0.02, sd=0.4, tail=tail) == pytest.approx(0.5)
    assert tail.at(0.5).ratio == pytest.approx(exp(log(2.0) * 0.5))
    workload = WorkloadAsked(Length(1000), Length(200), concurrency=16)
    chances = []
    for statistic in (Statistic.P50, Statistic.P90, Statistic.P99):
        result = llama_8b(workload, target=Target(ttft_s=2.0, tpot_s=0.05, statistic=statistic))
        chances.append(speed_of(result).meets_target_probability)
    assert chances == sorted(chances, key=lambda chance: -(chance or 0))
    assert WarningCode.TAIL_FROM_FEW_RUNS in warning_codes(result)
    assert WarningCode.TAIL_LENGTH_UNKNOWN in warning_codes(result)


def test_lengths_given_as_percentiles_have_the_mean_of_a_log_normal() -> None:
    # sigma = ln(4) / 1.6449 = 0.8428; mean = 500 exp(0.3552) = 713.
    length = Length.of_percentiles(p50_tokens=500, p95_tokens=2000)
    assert length.mean_tokens == 713
    result = llama_8b(WorkloadAsked(length, length, concurrency=4), target=Target(tpot_s=0.05, statistic=Statistic.P99))
    assert WarningCode.TAIL_LENGTH_UNKNOWN not in warning_codes(result)


def test_coverage_is_claimed_for_nvidia_only() -> None:
    amd = answer("llama-3.1-8b-instruct", "mi300x", workload=WorkloadAsked(concurrency=8))
    assert speed_of(amd).ttft_s.coverage_fraction is None
    assert WarningCode.NO_COVERAGE_MEASURED in warning_codes(amd)
    assert speed_of(llama_8b(WorkloadAsked(concurrency=8))).ttft_s.coverage_fraction == 0.8


def test_a_long_context_is_outside_the_evidence() -> None:
    result = llama_8b(WorkloadAsked(Length(100_000), Length(200), concurrency=1))
    assert WarningCode.OUTSIDE_EVIDENCE in warning_codes(result)


def test_the_largest_concurrency_is_zero_when_none_meets() -> None:
    assert largest_concurrency(lambda _: 2.0, most=1000) == 0
    assert largest_concurrency(lambda _: 1.0, most=1000) == 1000


@given(limit=st.integers(1, 5000), most=st.integers(1, 5000), bend=st.floats(0.2, 5))
def test_the_search_finds_the_last_that_keeps_the_limit_whatever_the_curve(limit: int, most: int, bend: float) -> None:
    assert largest_concurrency(lambda number: (number / limit) ** bend, most=most) == min(limit, most)


def test_a_rate_has_its_low_end_at_the_slow_end_of_the_time() -> None:
    time = Estimate(2.0, 1.0, 4.0, 0.8)
    rate = time.reciprocal_of(8.0)
    assert (rate.low, rate.value, rate.high) == (2.0, 4.0, 8.0)


def test_more_devices_make_one_user_faster_and_each_gpu_less_productive() -> None:
    workload = WorkloadAsked(Length(1000), Length(200), concurrency=32)
    two, eight = (
        speed_of(answer("llama-3.3-70b-instruct", "h200-sxm", parallelism=Parallelism(tp=tp), workload=workload))
        for tp in (2, 8)
    )
    assert eight.single_user_tokens_per_s.value > two.single_user_tokens_per_s.value
    assert eight.output_tokens_per_s_per_gpu.value < two.output_tokens_per_s_per_gpu.value
