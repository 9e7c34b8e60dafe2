"""Memory fit, by hand: weights, what an engine sets aside, and what is left for the KV cache."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.sizing.memory import LARGEST_LAYOUT
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.question import EngineAsked, PrecisionAsked, SpeculationAsked, WorkloadAsked
from service.sizing.remarks import WarningCode
from service.sizing.weights import pipeline_stages
from service.sizing.workload import Length
from tests.sizing.examples import GIB, answer, model, warning_codes

LLAMA_70B_PARAMETERS = 70_553_706_496  # published checkpoint
H100_USABLE_GIB = 79.19  # printed by vLLM, llm-d planner pull request 205


def budget_gib_by_hand(gpu_count: int) -> float:
    """vLLM 0.33 on H100 for Llama-3.3-70B BF16, in GiB."""
    usable = H100_USABLE_GIB * 0.92
    norms = 161 * 8192  # replicated: two per layer and the final one
    weights = 2 * ((LLAMA_70B_PARAMETERS - norms) / gpu_count + norms) / GIB
    logits = 14 * 1024 * 128256 / GIB
    hidden = 3 * 8192 * 8192 * 2 / GIB
    runtime = 0.25 if gpu_count == 1 else 2.1
    graphs = 1.1
    return usable - weights - logits - hidden - runtime - graphs


def test_llama_70b_does_not_fit_one_h100_and_says_what_is_missing() -> None:
    result = answer("llama-3.3-70b-instruct", "h100-sxm", parallelism=Parallelism(tp=1))
    request = 2048 * 327_680  # tokens x bytes per token on one rank
    assert not result.fit.fits
    assert result.fit.shortfall_bytes == pytest.approx(request - budget_gib_by_hand(1) * GIB, rel=1e-6)
    assert result.minimum_gpu_count == 2
    assert result.speed is None
    assert WarningCode.DOES_NOT_FIT in warning_codes(result)
    assert not result.verdict.interactive.suits


def test_on_two_it_fits_a_request_but_the_engine_would_not_start_at_its_own_length() -> None:
    result = answer("llama-3.3-70b-instruct", "h100-sxm", parallelism=Parallelism(tp=2))
    budget = budget_gib_by_hand(2) * GIB
    assert result.fit.fullest.budget_bytes == pytest.approx(budget, rel=1e-6)
    assert result.fit.fits
    assert not result.fit.would_start  # 131,072 tokens x 163,840 bytes = 20 GiB
    assert budget < 131_072 * 163_840
    assert WarningCode.ENGINE_WOULD_NOT_START in warning_codes(result)
    # It starts with the length that the answer names.
    blocks = int(budget // (16 * 163_840))
    assert result.fit.max_context_tokens == blocks * 16


def test_on_four_the_concurrency_follows_from_the_bytes() -> None:
    result = answer("llama-3.3-70b-instruct", "h100-sxm", parallelism=Parallelism(tp=4))
    blocks = int(budget_gib_by_hand(4) * GIB // (16 * 327_680 // 4))
    assert result.fit.fullest.block_count == blocks
    assert result.fit.max_concurrency == blocks // (2048 // 16)
    assert result.fit.would_start == (blocks >= 131_072 // 16)


@pytest.mark.parametrize(("tp", "per_rank"), [(1, 131_072), (2, 65_536), (8, 16_384)])
def test_kv_heads_are_divided_among_tp_ranks(tp: int, per_rank: int) -> None:
    result = answer("llama-3.1-8b-instruct", "h100-sxm", parallelism=Parallelism(tp=tp))
    assert result.fit.kv_cache_bytes_per_token == per_rank


def test_kv_heads_are_replicated_once_tp_exceeds_them() -> None:
    result = answer("llama-3.1-8b-instruct", "gb200-nvl72", parallelism=Parallelism(tp=16))
    assert result.fit.kv_cache_bytes_per_token == 16_384  # one of 8 heads, as at tp 8
    assert WarningCode.KV_HEADS_REPLICATED in warning_codes(result)


def test_a_latent_cache_lies_whole_on_every_tp_rank() -> None:
    result = answer("deepseek-v3", "gb200-nvl72", parallelism=Parallelism(tp=8))
    assert result.fit.kv_cache_bytes_per_token == 70_272  # 61 layers x (512 + 64) x 2 bytes
    assert WarningCode.KV_HEADS_REPLICATED in warning_codes(result)


def test_data_parallel_ranks_each_hold_a_pool_and_all_dense_weights() -> None:
    one = answer("llama-3.1-8b-instruct", "gb200-nvl72", parallelism=Parallelism(tp=2))
    two = answer("llama-3.1-8b-instruct", "gb200-nvl72", parallelism=Parallelism(tp=2, dp=2))
    assert two.fit.fullest.weight_bytes == one.fit.fullest.weight_bytes
    assert two.fit.max_concurrency == 2 * one.fit.max_concurrency
    assert two.replicas.gpu_count_per_replica == 4


def test_experts_are_spread_over_all_devices_of_a_stage() -> None:
    # DeepSeek-V3 FP8: 653,908,770,816 expert parameters of 2048 x 7168, a 4-byte scale per 128 x 128 block.
    expert_bytes = 653_908_770_816 * (1 + 4 / (128 * 128))
    narrow = answer("deepseek-v3", "gb200-nvl72", parallelism=Parallelism(tp=8))
    wide = answer("deepseek-v3", "gb200-nvl72", parallelism=Parallelism(tp=8, dp=4, ep=32))
    saved = narrow.fit.fullest.weight_bytes - wide.fit.fullest.weight_bytes
    assert saved == pytest.approx(expert_bytes / 8 - expert_bytes / 32, rel=1e-6)


def test_pipeline_stages_carry_the_embedding_first_and_the_head_last() -> None:
    stages = pipeline_stages(61, 4)
    assert [stage.end_layer - stage.first_layer for stage in stages] == [15, 15, 16, 15]
    assert [stage.is_first for stage in stages] == [True, False, False, False]
    assert [stage.is_last for stage in stages] == [False, False, False, True]


def test_the_last_of_two_equal_stages_is_the_fullest() -> None:
    # Both hold 40 layers and 2.1e9 bytes of embedding or head; only the last samples: 14 x 1,024 x 128,256 bytes.
    result = answer("llama-3.3-70b-instruct", "h100-sxm", parallelism=Parallelism(pp=2, tp=2))
    fullest = result.fit.fullest
    hidden = 3 * 8192 * 8192 * 2
    assert fullest.activation_bytes == 14 * 1024 * 128256 + hidden


def test_mtp_layers_are_resident_only_when_they_draft() -> None:
    layout = Parallelism(tp=8)
    plain = answer("deepseek-v3", "gb200-nvl72", parallelism=layout)
    drafting = answer("deepseek-v3", "gb200-nvl72", parallelism=layout, speculation=SpeculationAsked("mtp", 1, 1.8))
    mtp = model("deepseek-v3").mtp
    assert mtp is not None
    assert mtp.parameter_count == 11_610_067_968  # a decoder layer, eh_proj 2 h^2 and three norms
    added = drafting.fit.fullest.weight_bytes - plain.fit.fullest.weight_bytes
    assert added == pytest.approx(2 * mtp.parameter_count / 8)


@settings(max_examples=25, deadline=None)
@given(short=st.integers(1, 60_000), extra=st.integers(1, 60_000))
def test_what_fits_at_a_length_fits_at_every_shorter_one(short: int, extra: int) -> None:
    def concurrency(isl: int) -> int:
        workload = WorkloadAsked(isl=Length(isl), osl=Length(1))
        return answer("gpt-oss-120b", "h100-sxm", parallelism=Parallelism(tp=2), workload=workload).fit.max_concurrency

    assert concurrency(short) >= concurrency(short + extra)


def test_an_fp8_cache_holds_twice_the_tokens_of_bf16() -> None:
    wide, narrow = (
        answer(
            "llama-3.1-8b-instruct",
            "h100-sxm",
            parallelism=Parallelism(),
            precision=PrecisionAsked(kv_cache=precision),
        ).fit
        for precision in (Precision.BF16, Precision.FP8)
    )
    assert narrow.fullest.block_count in (2 * wide.fullest.block_count, 2 * wide.fullest.block_count + 1)


def test_a_model_too_large_for_any_layout_has_no_minimum() -> None:
    # 2.3e9 bytes of usable memory and less: no tp x pp of 576 chips holds 1.4e12 bytes of weights and overheads.
    result = answer("deepseek-v3", "groq-lpu-v1", precision=PrecisionAsked(weights="bf16"))
    assert result.minimum_gpu_count is None
    assert LARGEST_LAYOUT == 576


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_every_byte_of_a_rank_is_accounted_for(engine: str) -> None:
    fit = answer("llama-3.1-8b-instruct", "h100-sxm", engine=EngineAsked(name=engine), parallelism=Parallelism()).fit
    rank = fit.fullest
    parts = rank.weight_bytes + rank.activation_bytes + rank.runtime_bytes + rank.reserved_bytes + rank.budget_bytes
    assert parts == pytest.approx(rank.usable_bytes)
    assert fit.fits
