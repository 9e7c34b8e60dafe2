"""A disaggregated system as an answer: what is counted, what fits, and how fast it is."""

from functools import cache
from typing import Any

import pytest

from service.errors import Invalid, ParallelismNotLegal
from service.sizing.cost import Allocation
from service.sizing.disaggregated import HANDOVERS, Pools, WorkerPool
from service.sizing.evidence import EvidenceStore
from service.sizing.parallelism import Parallelism
from service.sizing.plan import SizingResult, size
from service.sizing.question import EconomicsAsked, EngineAsked, SizingInputs, SpeculationAsked, WorkloadAsked
from service.sizing.remarks import WarningCode
from service.sizing.run_terms import Phase
from service.sizing.speed import Speed
from service.sizing.workload import Length, Target
from tests.sizing.examples import accelerator, answer, model, warning_codes

LLAMA_8B, LLAMA_70B, H100 = "llama-3.1-8b-instruct", "llama-3.3-70b-instruct", "h100-sxm"
ISL, OSL = 2048, 256


def pools(*, prefill: int = 1, decode: int = 3, limit: int | None = None, **layout: int) -> Pools:
    worker = Parallelism(**layout)
    return Pools(WorkerPool(prefill, worker), WorkerPool(decode, worker), limit)


def system(asked: Pools, *, concurrency: int | None = None, rate: float | None = None, **more: Any) -> SizingResult:
    load = WorkloadAsked(Length(ISL), Length(OSL), concurrency, rate)
    return answer(LLAMA_8B, H100, parallelism=asked, workload=load, **more)


def speed_of(result: SizingResult) -> Speed:
    assert result.speed is not None
    return result.speed


def test_a_replica_is_both_pools() -> None:
    asked = Pools(WorkerPool(4, Parallelism(dp=4, ep=4)), WorkerPool(1, Parallelism(dp=32, ep=32)))
    replicas = answer("deepseek-r1", "gb200-nvl72", parallelism=asked, replica_count=2).replicas
    assert replicas.gpu_count_per_replica == 4 * 4 + 32
    assert replicas.idle_gpu_count == 2 * 72 - 2 * 48


def test_every_worker_takes_whole_gpus_of_several_devices() -> None:
    # A GPU of MI250X is two devices: workers of one take a GPU each, a worker of four takes two.
    asked = Pools(WorkerPool(3, Parallelism()), WorkerPool(1, Parallelism(tp=4)))
    assert answer(LLAMA_8B, "mi250x", parallelism=asked).replicas.gpu_count_per_replica == 3 + 2


def test_a_prefill_worker_holds_a_prompt_and_a_decode_worker_the_whole_request() -> None:
    found = system(pools()).pools
    assert found is not None
    assert (found.prefill.length_tokens, found.decode.length_tokens) == (ISL, ISL + OSL)
    assert found.prefill.fit.max_concurrency > found.decode.fit.max_concurrency


@pytest.mark.parametrize(("prefill_tp", "decode_tp", "lacking"), [(1, 4, "prefill"), (4, 1, "decode")])
def test_a_pool_that_does_not_fit_is_named_with_its_shortfall(prefill_tp: int, decode_tp: int, lacking: str) -> None:
    # 141 GB of BF16 weights: not on one H100 of 80 GB, but on four.
    asked = Pools(WorkerPool(1, Parallelism(tp=prefill_tp)), WorkerPool(1, Parallelism(tp=decode_tp)))
    result = answer(LLAMA_70B, H100, parallelism=asked)
    assert result.pools is not None
    assert [result.pools.prefill.fit.fits, result.pools.decode.fit.fits] == [lacking != "prefill", lacking != "decode"]
    assert not result.fit.fits
    assert result.fit.shortfall_bytes == getattr(result.pools, lacking).fit.shortfall_bytes > 60e9
    assert result.speed is None
    (warning,) = (each for each in result.resolved.remarks.warnings if each.code is WarningCode.DOES_NOT_FIT)
    assert warning.detail.startswith(f"{lacking} pool: ")


def test_a_decode_worker_runs_what_its_engine_lets_each_rank_run() -> None:
    found = system(pools(dp=2), engine=EngineAsked(max_num_seqs=8)).pools
    assert found is not None
    assert found.decode_max_batch == 8 * 2


def test_a_decode_batch_beyond_memory_is_warned_of_and_not_run() -> None:
    result = system(pools(limit=100_000), concurrency=1)
    assert result.pools is not None
    assert result.pools.decode_max_batch == result.pools.decode.fit.max_concurrency < 100_000
    assert WarningCode.REQUESTS_QUEUE in warning_codes(result)
    assert WarningCode.REQUESTS_QUEUE not in warning_codes(system(pools(limit=16), concurrency=1))


def test_a_decode_step_reads_the_weights_and_the_caches_of_its_own_batch_alone() -> None:
    # 8.03e9 BF16 parameters but for the embedding's 128,256 rows of 4,096, of which a step reads a few; keys and
    # values of 32 layers x 8 heads x 128 in 2 bytes, of a prompt and half of an answer; at 3.35 TB/s.
    speed = speed_of(system(pools(prefill=8, decode=2), concurrency=24))
    terms = {term.name: term for term in speed.step.terms}
    weight_bytes = 2 * (8_030_261_248 - 128_256 * 4096)
    assert terms["weights"].spec_time_s == pytest.approx(weight_bytes / 3.35e12, rel=1e-3)
    cache_bytes = 2 * 32 * 8 * 128 * 2 * (ISL + OSL / 2)
    assert speed.tpot_s is not None
    batch = speed.requests_per_s.value * (OSL - 1) * speed.tpot_s.value / 2  # Little's law over 2 decode workers
    assert terms["kv_cache"].spec_time_s == pytest.approx(batch * cache_bytes / 3.35e12)
    assert speed.point.running == round(batch)
    assert speed.tpot_s.value == pytest.approx(speed.step.time_s)  # and no prompt stalls it


@pytest.mark.parametrize("concurrency", [1, 24, 1000])
def test_concurrency_is_the_rate_times_the_time_of_a_request(concurrency: int) -> None:
    speed = speed_of(system(pools(limit=32), concurrency=concurrency))
    assert speed.tpot_s is not None
    request_s = speed.ttft_s.value + (OSL - 1) * speed.tpot_s.value
    assert speed.requests_per_s.value * request_s == pytest.approx(concurrency)
    assert speed.output_tokens_per_s_per_gpu.value == pytest.approx(speed.requests_per_s.value * OSL / 4)


def test_a_request_alone_waits_for_its_handling_its_prompt_and_five_steps() -> None:
    speed = speed_of(system(pools(prefill=1000), concurrency=1))
    handover = HANDOVERS["vllm"]
    overhead_s = next(term.time_s for term in speed.prefill.terms if term.name == "layer_overhead")
    # Of one prompt alone the weights' reading is left out: a busy worker reads them for other prompts too.
    reading = {"weights", "experts", "layer_overhead"}
    prompt_s = sum(term.time_s for term in speed.prefill.terms if term.name not in reading)
    assert speed.tpot_s is not None
    waited_s = handover.request_s + prompt_s + overhead_s + 5 * speed.tpot_s.value
    assert speed.ttft_s.value == pytest.approx(waited_s, rel=1e-3)  # of 1,000 prefill workers nobody queues


def test_a_full_decode_pool_keeps_requests_waiting_and_says_so() -> None:
    result = system(pools(prefill=100, decode=2, limit=16), concurrency=200)
    speed = speed_of(result)
    assert speed.tpot_s is not None
    decode_s = (OSL - 1) * speed.tpot_s.value
    assert speed.point.running == 16
    assert speed.ttft_s.value == pytest.approx((200 / (2 * 16) - 1) * decode_s)
    assert 0 < speed.point.waiting_s < speed.ttft_s.value
    assert WarningCode.REQUESTS_QUEUE in warning_codes(result)


def test_a_prefill_pool_that_is_never_idle_gives_the_rate() -> None:
    one, two = (speed_of(system(pools(prefill=count, decode=8), concurrency=5000)) for count in (1, 2))
    assert one.point.prefill_time_fraction == pytest.approx(1, abs=0.01)
    assert two.requests_per_s.value == pytest.approx(2 * one.requests_per_s.value, rel=0.01)


@pytest.mark.parametrize("asked", [pools(prefill=1, decode=8), pools(prefill=8, decode=1, limit=16)])
def test_left_to_itself_a_system_is_filled_and_nobody_waits_for_a_place(asked: Pools) -> None:
    result = system(asked)
    speed = speed_of(result)
    assert speed.point.waiting_s == 0
    assert WarningCode.REQUESTS_QUEUE not in warning_codes(result)
    crowded = speed_of(system(asked, concurrency=100_000))
    assert 0.8 < speed.requests_per_s.value / crowded.requests_per_s.value <= 1


def test_the_largest_concurrency_keeps_the_target_and_one_more_does_not() -> None:
    target = Target(tpot_s=0.012)
    speed = speed_of(system(pools(prefill=8), target=target))
    assert speed.at_target is not None
    assert speed.at_target.concurrency == speed.point.concurrency
    assert speed.tpot_s is not None
    more = speed_of(system(pools(prefill=8), concurrency=speed.point.concurrency + 1))
    assert more.tpot_s is not None
    assert speed.tpot_s.value <= 0.012 < more.tpot_s.value
    assert speed.meets_target_probability == pytest.approx(0.5, abs=0.02)


def test_an_asked_rate_is_served_by_no_more_requests_than_it_takes() -> None:
    speed = speed_of(system(pools(), rate=3.0))
    fewer = speed_of(system(pools(), concurrency=speed.point.concurrency - 1))
    assert fewer.requests_per_s.value < 3.0 <= speed.requests_per_s.value
    assert WarningCode.RATE_NOT_SUSTAINED in warning_codes(system(pools(), rate=1e6))


def test_the_prefill_pools_gpus_are_what_the_input_costs() -> None:
    result = system(pools(prefill=1, decode=3), concurrency=24, economics=EconomicsAsked(2.0))
    assert result.cost is not None
    per_request = 4 * 2.0 / 3600 / speed_of(result).requests_per_s.value
    assert result.cost.usd_per_input_token.value == pytest.approx(per_request / 4 / ISL)
    assert result.cost.usd_per_output_token.value == pytest.approx(per_request * 3 / 4 / OSL)
    assert result.cost.allocation is Allocation.GPU_COUNT


def test_coverage_is_claimed_of_the_tpot_of_a_system_alone() -> None:
    """13 campaigns of disaggregated runs on such parts were predicted from others; no TTFT of theirs was."""
    result = system(pools(), concurrency=24)
    speed = speed_of(result)
    assert speed.tpot_s is not None
    assert speed.tpot_s.coverage_fraction == 0.8
    assert speed.ttft_s.coverage_fraction is None
    assert WarningCode.NO_COVERAGE_MEASURED in warning_codes(result)


def test_a_single_output_token_is_not_decoded() -> None:
    load = WorkloadAsked(Length(ISL), Length(1), 4)
    speed = speed_of(answer(LLAMA_8B, H100, parallelism=pools(), workload=load))
    assert speed.tpot_s is None
    assert speed.requests_per_s.value * speed.ttft_s.value == pytest.approx(4)


@cache
def question() -> SizingInputs:
    return SizingInputs(
        model=model("deepseek-r1"),
        accelerator=accelerator("gb200-nvl72"),
        parallelism=Pools(WorkerPool(4, Parallelism(dp=4, ep=4)), WorkerPool(1, Parallelism(dp=32, ep=32))),
        workload=WorkloadAsked(Length(8192), Length(1024), 400),
        engine=EngineAsked(name="tensorrt-llm"),
    )


def test_stored_runs_of_decode_workers_narrow_the_answer_and_are_named(shipped_evidence: EvidenceStore) -> None:
    without, leaning = speed_of(size(question())), speed_of(size(question(), shipped_evidence))
    assert without.tpot_s is not None
    assert leaning.tpot_s is not None
    assert leaning.tpot_s.high / leaning.tpot_s.low < without.tpot_s.high / without.tpot_s.low
    (nearest, *_) = leaning.beliefs[Phase.DISAGGREGATED].leans_on
    assert nearest.phase is Phase.DISAGGREGATED
    assert leaning.requests_per_s.value * (leaning.ttft_s.value + 1023 * leaning.tpot_s.value) == pytest.approx(400)
    ratio = leaning.tpot_s.value / leaning.step.time_s
    assert ratio == pytest.approx(leaning.beliefs[Phase.DISAGGREGATED].ratio, rel=0.01)  # between the batches asked


def test_an_empty_store_leaves_every_value_to_the_physics() -> None:
    without, empty = speed_of(size(question())), speed_of(size(question(), EvidenceStore.of()))
    assert empty.point == without.point


REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"parallelism": Pools(WorkerPool(1, Parallelism(pp=2)), WorkerPool(1, Parallelism()))}, ("prefill", "pp")),
    ({"parallelism": Pools(WorkerPool(1, Parallelism()), WorkerPool(1, Parallelism(pp=2)))}, ("decode", "pp")),
    ({"speculation": SpeculationAsked("mtp", 1, 1.5)}, ("speculation",)),
    ({"replica_count": None}, ("replica_count",)),
    ({"engine": EngineAsked(name="llama.cpp")}, ("engine", "name")),
]


@pytest.mark.parametrize(("asked", "field"), REFUSED)
def test_what_the_closed_form_does_not_know_is_refused(asked: dict[str, Any], field: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as refused:
        answer(LLAMA_8B, H100, **{"parallelism": pools()} | asked)
    assert refused.value.field[-len(field) :] == field


def test_decode_context_parallel_is_refused() -> None:
    # tp 16 holds two copies of each of the 8 KV heads, which decode context parallel could divide.
    with pytest.raises(Invalid, match="not modelled in disaggregated") as refused:
        answer(
            LLAMA_70B,
            "gb200-nvl72",
            parallelism=pools(tp=16),
            engine=EngineAsked(decode_context_parallel_count=2),
        )
    assert refused.value.field == ("engine", "decode_context_parallel_count")


def test_a_layout_that_does_not_divide_names_its_pool() -> None:
    with pytest.raises(ParallelismNotLegal) as refused:
        answer(LLAMA_8B, H100, parallelism=Pools(WorkerPool(1, Parallelism()), WorkerPool(1, Parallelism(tp=3))))
    assert refused.value.field == ("parallelism", "decode", "tp")
