"""Memory fit, by hand: weights, what an engine sets aside, and what is left for the KV cache."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import Invalid
from service.sizing.memory import LARGEST_LAYOUT, MemoryFit
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
    logits = (12.5 + 2) * 1024 * 128256 / GIB
    hidden = 1.2 * 8192 * 8192 * 2 / GIB
    runtime = 0.25 if gpu_count == 1 else 2.08
    graphs = 0.375 + 0.0176 * 80
    return usable - weights - logits - hidden - 0.04 - runtime - graphs


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
    # Both hold 40 layers and 2.1e9 bytes of embedding or head; only the last samples: 14.5 x 1,024 x 128,256 bytes.
    result = answer("llama-3.3-70b-instruct", "h100-sxm", parallelism=Parallelism(pp=2, tp=2))
    fullest = result.fit.fullest
    hidden = 1.2 * 8192 * 8192 * 2
    assert fullest.activation_bytes == pytest.approx(14.5 * 1024 * 128256 + hidden + 0.04 * GIB)
    first, last = result.fit.ranks
    assert last is fullest
    # The first only passes the batch through: gate, up and activated widths of 28,672 over 2, and 4 hidden states.
    assert first.activation_bytes == pytest.approx(8192 * 2 * (3 * 28672 / 2 + 4 * 8192) + 0.04 * GIB)


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


@pytest.mark.parametrize("slug", ["qwen3-8b", "llama-3.3-70b-instruct", "deepseek-r1", "gemma-3-27b-it"])
def test_what_does_not_fit_lacks_something(slug: str) -> None:
    # Sums of eleven digits leave a residue of rounding, which is not a shortfall.
    parts = ("rtx-4090", "l40s", "h100-sxm", "b200-sxm", "gb200-nvl72", "mi300x", "mi325x")
    for part, tp, pp in product(parts, (1, 2, 4, 8), (1, 2, 4)):
        if tp * pp <= 8:
            fit = answer(slug, part, parallelism=Parallelism(tp=tp, pp=pp)).fit
            assert fit.fits == (fit.shortfall_bytes == 0), (slug, part, tp, pp)


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


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_every_byte_of_a_rank_is_accounted_for(engine: str) -> None:
    fit = answer("llama-3.1-8b-instruct", "h100-sxm", engine=EngineAsked(name=engine), parallelism=Parallelism()).fit
    rank = fit.fullest
    parts = rank.weight_bytes + rank.activation_bytes + rank.runtime_bytes + rank.reserved_bytes + rank.budget_bytes
    assert parts == pytest.approx(rank.usable_bytes)
    assert fit.fits


def test_experts_lay_out_a_workspace_beside_the_logits() -> None:
    # Qwen3-30B-A3B, 8 of 128 experts of width 768, hidden 2,048: vLLM 0.19 on H100 printed 2.68 GiB of activations.
    fit = h100_fit("qwen3-30b-a3b", version="0.19.0")
    workspace = 8192 * 8 * (2048 + 2048) * 2
    sampler = 14.5 * 1024 * 151_936 + 1.2 * 8192 * 2048 * 2
    assert fit.fullest.activation_bytes == pytest.approx(sampler + workspace + 0.04 * GIB)
    assert fit.fullest.activation_bytes / GIB == pytest.approx(2.68, abs=0.01)


def test_the_sampler_of_older_releases_took_38_bytes_a_logit() -> None:
    # Qwen3-14B fell from 5.64 to 2.23 GiB between 0.16 and 0.17; Llama-3.1-8B took 4.76 GiB under 0.11.
    assert h100_fit("llama-3.1-8b-instruct", version="0.11.0").fullest.activation_bytes / GIB == pytest.approx(
        4.76, abs=0.01
    )


def test_weights_in_32_bits_bring_a_cache_in_32_bits() -> None:
    fit = h100_fit("llama-3.1-8b-instruct", version="0.19.0", precision=PrecisionAsked(weights="fp32"))
    assert fit.kv_cache_bytes_per_token == 2 * 131_072
    assert fit.fullest.activation_bytes / GIB == pytest.approx(2.21, abs=0.03)  # printed


def test_mxfp4_experts_are_padded_when_they_are_loaded() -> None:
    # 24 layers x 32 experts x 3 x 2,880 x 2,880 elements of 4.25 bits, padded to 3,072 of 2,880 columns.
    plain = 24 * 32 * 3 * 2880 * 2880 * 4.25 / 8
    fit = h100_fit("gpt-oss-20b", version="0.19.0")
    unpadded = fit.fullest.weight_bytes - plain * (3072 / 2880 - 1)
    assert unpadded == pytest.approx(13_761_264_768, rel=3e-3)  # published checkpoint
    assert fit.fullest.weight_bytes / GIB == pytest.approx(13.47, abs=0.05)  # printed


def test_decode_context_parallel_divides_the_tokens_of_a_latent() -> None:
    layout = Parallelism(tp=8)
    whole = answer("deepseek-v3", "gb200-nvl72", parallelism=layout, engine=EngineAsked(max_model_len_tokens=8192))
    shared = answer(
        "deepseek-v3",
        "gb200-nvl72",
        parallelism=layout,
        engine=EngineAsked(max_model_len_tokens=8192, decode_context_parallel_count=8),
    )
    assert shared.fit.kv_cache_bytes_per_token == whole.fit.kv_cache_bytes_per_token / 8
    assert shared.fit.fullest.pool.blocks_per_request(8192) == 8192 // (16 * 8)
    assert shared.speed is None
    assert WarningCode.SPEED_NOT_MODELLED in warning_codes(shared)


def test_decode_context_parallel_needs_ranks_that_hold_the_same_heads() -> None:
    with pytest.raises(Invalid, match="1 ranks that hold the same KV heads"):
        answer(
            "llama-3.3-70b-instruct",
            "gb200-nvl72",
            parallelism=Parallelism(tp=8),
            engine=EngineAsked(decode_context_parallel_count=2),
        )


def test_a_stated_pool_is_taken_as_it_is() -> None:
    fit = h100_fit("llama-3.1-8b-instruct", version="0.33.0", kv_cache_memory_bytes=16 * 131_072 * 1000)
    assert fit.fullest.block_count == 1000
    too_large = h100_fit("llama-3.1-8b-instruct", version="0.33.0", kv_cache_memory_bytes=70 * GIB)
    assert not too_large.fits
    assert too_large.fullest.overcommitted_bytes > 0
    assert too_large.refusal is not None


def test_the_engine_refuses_when_the_memory_it_claims_is_not_free() -> None:
    # DGX Spark: 121.63 GiB x 0.87 = 105.8 GiB claimed and 101.8 free (GLM-5.3-Flash-EXL3 on two Sparks, issue 47).
    result = answer(
        "llama-3.1-8b-instruct",
        "dgx-spark-gb10",
        parallelism=Parallelism(),
        engine=EngineAsked(memory_fraction=0.87, free_memory_bytes=101.8 * GIB),
    )
    assert not result.fit.would_start
    assert WarningCode.ENGINE_WOULD_NOT_START in warning_codes(result)


def test_the_figures_of_a_pool_one_gib_larger_are_those_of_that_pool() -> None:
    fit = h100_fit("llama-3.1-8b-instruct", version="0.19.0")
    blocks_of_a_gib = GIB / (16 * 131_072)
    assert fit.larger_pool.reported_tokens - fit.reported_tokens == pytest.approx(16 * blocks_of_a_gib, abs=16)
    assert fit.reported_tokens - fit.smaller_pool.reported_tokens == pytest.approx(16 * blocks_of_a_gib, abs=16)


def test_what_is_needed_at_start_is_one_request_of_the_maximum_length() -> None:
    fit = h100_fit("llama-3.3-70b-instruct", version="0.19.0", max_model_len_tokens=131_072)
    assert fit.needed_bytes == 131_072 * 327_680
    assert not fit.would_start


def test_llama_cpp_keeps_every_head_of_a_latent_until_it_has_kernels_for_it() -> None:
    # 27 layers x 16 heads x (192 + 128) x 2 bytes x 163,840 cells = 43,200 MiB (llama.cpp issue 8817).
    def cache_bytes(version: str) -> int:
        engine = EngineAsked(name="llama.cpp", version=version, max_model_len_tokens=163_840)
        layout = Parallelism()
        return answer("deepseek-v2-lite", "h100-sxm", engine=engine, parallelism=layout).fit.needed_bytes

    assert cache_bytes("3600") == 27 * 16 * (192 + 128) * 2 * 163_840 == 43_200 * 2**20
    assert cache_bytes("5150") == 27 * (512 + 64) * 2 * 163_840


def test_llama_cpp_has_no_memory_fraction_and_no_speed() -> None:
    with pytest.raises(Invalid, match="no memory fraction"):
        answer("llama-3.1-8b-instruct", "h100-sxm", engine=EngineAsked(name="llama.cpp", memory_fraction=0.9))
    result = answer("llama-3.1-8b-instruct", "h100-sxm", engine=EngineAsked(name="llama.cpp"))
    assert result.fit.fits
    assert result.speed is None
    assert WarningCode.SPEED_NOT_MODELLED in warning_codes(result)


def test_unified_memory_widens_what_the_budget_may_be_off_by() -> None:
    shared = answer("llama-3.1-8b-instruct", "dgx-spark-gb10", parallelism=Parallelism()).fit.fullest
    assert shared.plus_minus_bytes > 14 * GIB
    assert h100_fit("llama-3.1-8b-instruct", version="0.33.0").fullest.plus_minus_bytes < 2 * GIB


def h100_fit(slug: str, *, version: str, precision: PrecisionAsked | None = None, **flags: Any) -> MemoryFit:
    """On one H100 with the flags of llm-d planner pull request 205."""
    asked = {
        "memory_fraction": 0.95,
        "max_model_len_tokens": 8192,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
    }
    return answer(
        slug,
        "h100-sxm",
        parallelism=Parallelism(),
        precision=precision or PrecisionAsked(),
        engine=EngineAsked(version=version, **(asked | flags)),
    ).fit
