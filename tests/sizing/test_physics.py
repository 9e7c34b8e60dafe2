"""Properties that hold whatever the numbers, and steps worked out by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.sizing.costs import compute_rates, device_of, step_costs
from service.sizing.decode import DecodeCurve, decode_curve
from service.sizing.parallelism import Parallelism
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.prefill import prefill_step
from service.sizing.question import EngineAsked, PrecisionAsked, SpeculationAsked, WorkloadAsked
from service.sizing.roofline import Bound
from service.sizing.step import Step, StepCosts, layer_overhead_s
from service.sizing.weights import served_weights
from service.sizing.workload import Length
from tests.sizing.examples import accelerator, answer, model

ROOFLINE = StepParameters.roofline()


def costs_of(
    model_slug: str,
    accelerator_slug: str,
    *,
    layout: Parallelism = Parallelism(),  # noqa: B008 - frozen
    scheme: str | None = None,
    kv_cache: Precision = Precision.BF16,
) -> StepCosts:
    device, weights = device_of(accelerator(accelerator_slug)), served_weights(model(model_slug), scheme)
    return step_costs(
        model=model(model_slug),
        weights=weights,
        device=device,
        parallelism=layout,
        kv_cache=kv_cache,
        rates=compute_rates(device, weights=weights, asked=None, density=Density.DENSE),
    )


def term_s(step: Step, name: str) -> float:
    return float(next(term.time_s for term in step.terms if term.name == name))


QUESTIONS = [
    ("llama-3.3-70b-instruct", "gb200-nvl72", Parallelism(tp=2), "nvfp4"),
    ("llama-3.1-8b-instruct", "h100-sxm", Parallelism(), "fp8"),
    ("deepseek-v3", "b200-sxm", Parallelism(tp=8), None),
    ("deepseek-v3", "gb200-nvl72", Parallelism(tp=4, dp=4, ep=16), None),
    ("gpt-oss-120b", "mi300x", Parallelism(tp=2, pp=2), None),
    ("nemotron-3-super-120b-a12b", "h200-sxm", Parallelism(tp=4), None),
]


Question = tuple[str, str, Parallelism, str | None]


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=25, deadline=None)
@given(batch=st.integers(1, 4096), context=st.integers(1, 200_000))
def test_a_step_is_never_faster_than_either_arm_of_the_roofline(question: Question, batch: int, context: int) -> None:
    model_slug, accelerator_slug, layout, scheme = question
    costs = costs_of(model_slug, accelerator_slug, layout=layout, scheme=scheme)
    for parameters in (ROOFLINE, StepParameters.fitted("vllm")):
        step = decode_curve(costs, parameters, context_tokens=context).step(batch)
        assert step.time_s >= step.spec_time_s_by_bound[Bound.MEMORY]
        assert step.time_s >= step.spec_time_s_by_bound[Bound.COMPUTE]
        assert 0 < step.mfu <= 1
        assert 0 < step.mbu <= 1


@pytest.mark.parametrize(("model_slug", "accelerator_slug", "layout", "scheme"), QUESTIONS)
def test_a_curve_sums_its_terms_at_every_batch(
    model_slug: str, accelerator_slug: str, layout: Parallelism, scheme: str | None
) -> None:
    costs = costs_of(model_slug, accelerator_slug, layout=layout, scheme=scheme)
    for parameters, tokens in product((ROOFLINE, StepParameters.fitted("sglang")), (1, 4)):
        curve = decode_curve(costs, parameters, context_tokens=3000, tokens_per_sequence=tokens)
        batches = np.array([1, 7, 64, 513])
        assert curve.time_s(batches) == pytest.approx([curve.step(int(batch)).time_s for batch in batches])


def test_halving_the_weight_bytes_halves_the_weights_term() -> None:
    # Of Llama-2-7B only the projections change; the head is read in 16 bits under both.
    def weights_s(scheme: str) -> float:
        costs = costs_of("llama-2-7b", "h100-sxm", scheme=scheme)
        return term_s(decode_curve(costs, ROOFLINE, context_tokens=1).step(1), "weights")

    rest = 2 * (32_000 * 4096 + 65 * 4096) / 3.35e12
    scales = 2 * 32 * (4 * 4096 + 2 * 11008 + 4096) / 3.35e12
    assert weights_s("fp8") - rest - scales == pytest.approx((weights_s("bf16") - rest) / 2)


def test_a_layout_of_one_is_no_parallelism() -> None:
    costs = costs_of("llama-3.1-8b-instruct", "h100-sxm", layout=Parallelism(tp=1, pp=1, ep=1, dp=1))
    assert costs.all_reduce_s_per_token == 0
    assert costs.all_to_all_s_per_token == 0


def test_llama_8b_on_h100_step_by_hand() -> None:
    # BF16, batch 1, context 1,000: 8,030,261,248 parameters less the embedding table of 128,256 x 4,096, 2 bytes each,
    # and 131,072 bytes of KV per token, at 3.35 TB/s; twice the matrix parameters in FLOP at 989.5 TFLOP/s.
    costs = costs_of("llama-3.1-8b-instruct", "h100-sxm")
    step = decode_curve(costs, ROOFLINE, context_tokens=1000).step(1)
    embedding = 128_256 * 4096
    assert term_s(step, "weights") == pytest.approx(2 * (8_030_261_248 - embedding) / 3.35e12)
    assert term_s(step, "kv_cache") == pytest.approx(131_072 * 1000 / 3.35e12)
    norms = 65 * 4096
    assert term_s(step, "projections") == pytest.approx(2 * (8_030_261_248 - embedding - norms) / 989.5e12)
    assert term_s(step, "attention") == pytest.approx(2 * 32 * 32 * 256 * 1000 / 989.5e12)


def test_moe_decode_at_batch_64_reads_nearly_all_experts() -> None:
    # Qwen3-30B-A3B: 1 - (1 - 8/128)^64 = 98.4 % of 48 x 128 x 3 x 2048 x 768 parameters, not the 6.25 % of one token.
    costs = costs_of("qwen3-30b-a3b", "h100-sxm")
    curve = decode_curve(costs, ROOFLINE, context_tokens=1000)
    all_experts = 2 * 48 * 128 * 3 * 2048 * 768 / 3.35e12
    assert term_s(curve.step(1), "experts") == pytest.approx(all_experts * 8 / 128)
    assert term_s(curve.step(64), "experts") == pytest.approx(all_experts * (1 - (120 / 128) ** 64))
    assert term_s(curve.step(64), "experts") > 15 * term_s(curve.step(1), "experts")


def test_tensor_parallel_all_reduce_by_hand() -> None:
    # Llama-3.3-70B, tp 8 on NVLink at 450 GB/s: 80 layers x 2 x (2 x 8192 x 2 bytes x 7/8) per token.
    costs = costs_of("llama-3.3-70b-instruct", "h100-sxm", layout=Parallelism(tp=8))
    assert costs.all_reduce_s_per_token == pytest.approx(160 * 2 * 8192 * 2 * 7 / 8 / 450e9)


def test_a_stage_exchanges_its_own_layers_only_and_one_token_passes_all_stages() -> None:
    alone = costs_of("llama-3.3-70b-instruct", "h100-sxm", layout=Parallelism(tp=2))
    staged = costs_of("llama-3.3-70b-instruct", "h100-sxm", layout=Parallelism(tp=2, pp=4))
    one, four = (
        term_s(prefill_step(costs, ROOFLINE, prompt_tokens=1024, tokens_per_pass=8192), "communication")
        for costs in (alone, staged)
    )
    assert one == pytest.approx(1024 * 160 * 2 * 8192 * 2 / 2 / 450e9)
    assert four == pytest.approx(one)
    decoding = [decode_curve(costs, ROOFLINE, context_tokens=1000).step(1) for costs in (alone, staged)]
    assert term_s(decoding[0], "communication") == pytest.approx(term_s(decoding[1], "communication"))


def test_a_mesh_of_direct_links_gives_a_small_group_its_share() -> None:
    # MI300X: seven links of 64 GB/s one way; a pair uses one of them.
    pair = costs_of("llama-3.3-70b-instruct", "mi300x", layout=Parallelism(tp=2))
    assert pair.all_reduce_s_per_token == pytest.approx(160 * 2 * 8192 * 2 * 1 / 2 / 64e9)


def test_prefill_is_compute_bound_and_counts_active_parameters() -> None:
    costs = costs_of("qwen3-30b-a3b", "h100-sxm")
    step = prefill_step(costs, ROOFLINE, prompt_tokens=8192, tokens_per_pass=8192)
    assert step.bound is Bound.COMPUTE
    experts = 2 * 8192 * 8 * 48 * 3 * 2048 * 768 / 989.5e12
    assert term_s(step, "expert_projections") == pytest.approx(experts)


def test_a_cached_prefix_is_attended_to_but_not_projected() -> None:
    costs = costs_of("llama-3.1-8b-instruct", "h100-sxm")
    cached = prefill_step(costs, ROOFLINE, prompt_tokens=1000, cached_tokens=7000, tokens_per_pass=8192)
    alone = prefill_step(costs, ROOFLINE, prompt_tokens=1000, tokens_per_pass=8192)
    assert term_s(cached, "projections") == term_s(alone, "projections")
    # 1,000 tokens attend to 7,000 + 500 rather than 500 on average.
    assert term_s(cached, "attention") == pytest.approx(15 * term_s(alone, "attention"))


def test_a_dense_70b_at_four_bits_decodes_near_6_tokens_per_s_on_273_gb_per_s() -> None:
    # 39.8e9 bytes of AWQ weights less the embedding's 2.1e9 at 273 GB/s is 0.138 s: at most 7.2; published: 6.0
    # (the founding article's run of 2026-09-02 for Llama 3.3 70B AWQ, one user).
    result = answer("llama-3.3-70b-instruct-awq", "dgx-spark-gb10", workload=WorkloadAsked(Length(128), Length(128), 1))
    assert result.speed is not None
    rate = result.speed.single_user_tokens_per_s
    assert 5.5 < rate.value < 7.2
    assert rate.low < 6.0 < rate.high


def test_qwen3_coder_decodes_far_faster_than_its_30b_would_say() -> None:
    # Published 80.9 tokens/s for one user, near 4 bit: 3.3B active of 30.5B.
    moe = answer(
        "qwen3-coder-30b-a3b",
        "dgx-spark-gb10",
        precision=PrecisionAsked(weights="awq-int4"),
        workload=WorkloadAsked(Length(128), Length(128), 1),
    )
    assert moe.speed is not None
    rate = moe.speed.single_user_tokens_per_s
    all_weights_at_four_bits = 273e9 / (30.5e9 / 2)
    assert rate.value > 3 * all_weights_at_four_bits
    assert rate.low < 80.9 < rate.high


def test_speculation_gains_for_one_user_and_less_or_nothing_in_a_large_batch() -> None:
    def rate(concurrency: int, *, drafts: bool) -> float:
        result = answer(
            "llama-3.3-70b-instruct",
            "h100-sxm",
            parallelism=Parallelism(tp=4),
            precision=PrecisionAsked(weights="fp8"),
            workload=WorkloadAsked(Length(512), Length(512), concurrency),
            speculation=SpeculationAsked("eagle", 3, 2.0) if drafts else None,
        )
        assert result.speed is not None
        return result.speed.output_tokens_per_s.value

    assert rate(1, drafts=True) > 1.5 * rate(1, drafts=False)
    gain_alone = rate(1, drafts=True) / rate(1, drafts=False)
    gain_in_batch = rate(256, drafts=True) / rate(256, drafts=False)
    assert gain_in_batch < gain_alone
    assert gain_in_batch < 1


def test_an_unquantised_model_computes_in_16_bits_and_a_weight_only_scheme_too() -> None:
    device = device_of(accelerator("h100-sxm"))
    for scheme in ("bf16", "awq-int4"):
        weights = served_weights(model("llama-3.1-8b-instruct"), scheme)
        rates = compute_rates(device, weights=weights, asked=None, density=Density.DENSE)
        assert rates.by_scheme[scheme].flop_per_s == 989.5e12


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_the_layer_overhead_is_the_fitted_one(engine: str) -> None:
    # H100 is where it was fitted: 64.1 us x 80 layers, times 1.39 for vLLM and 1.16 for SGLang.
    factor = {"vllm": 1.39, "sglang": 1.16, "tensorrt-llm": 1.0}[engine]
    parameters = StepParameters.fitted(engine)
    costs = costs_of("llama-3.3-70b-instruct", "h100-sxm", layout=Parallelism(tp=2))
    assert layer_overhead_s(costs, parameters) == pytest.approx(80 * 6.41e-5 * factor)
    result = answer("llama-3.1-8b-instruct", "h100-sxm", engine=EngineAsked(name=engine))
    assert result.speed is not None


def test_latent_attention_launches_more_kernels_per_layer() -> None:
    parameters = StepParameters.fitted("tensorrt-llm")
    costs = costs_of("deepseek-v3", "h200-sxm", layout=Parallelism(tp=8))
    assert layer_overhead_s(costs, parameters) == pytest.approx(61 * 6.41e-5 * 1.87 * (4.8 / 3.35) ** -0.172)


def test_a_lower_clock_slows_arithmetic_and_leaves_reading_alone() -> None:
    costs = costs_of("llama-3.1-8b-instruct", "h100-sxm")
    full = decode_curve(costs, ROOFLINE, context_tokens=1000).step(8)
    half = decode_curve(costs, ROOFLINE.at_clock(0.5), context_tokens=1000).step(8)
    assert term_s(half, "weights") == term_s(full, "weights")
    assert term_s(half, "projections") == pytest.approx(2 * term_s(full, "projections"))
    assert term_s(half, "attention") == pytest.approx(2 * term_s(full, "attention"))
    # MFU is against the printed peak, whatever the clock.
    assert half.mfu * half.time_s == pytest.approx(full.mfu * full.time_s)


@pytest.mark.parametrize("slug", ["llama-3.3-70b-instruct", "gpt-oss-120b", "deepseek-v3", "qwen3.5-27b"])
@pytest.mark.parametrize("wider", [Parallelism(tp=2, pp=4), Parallelism(tp=2, dp=4)])
def test_neither_stages_nor_data_parallel_ranks_make_one_user_faster(slug: str, wider: Parallelism) -> None:
    # A sequence passes the stages in turn and lives on one dp rank. Only experts are spread over dp ranks too.
    fitted = StepParameters.fitted("vllm")
    narrow_costs = costs_of(slug, "gb200-nvl72", layout=Parallelism(tp=2))
    wide_costs = costs_of(slug, "gb200-nvl72", layout=wider)
    narrow, wide = (decode_curve(costs, fitted, context_tokens=20_000).step(1) for costs in (narrow_costs, wide_costs))
    for name in ("weights", "kv_cache", "recurrent_state", "projections", "attention"):
        assert term_s(wide, name) >= term_s(narrow, name) * (1 - 1e-9)
    if wider.pp > 1:
        assert wide.time_s >= narrow.time_s * (1 - 1e-9)
        assert term_s(wide, "experts") == pytest.approx(term_s(narrow, "experts"))


def test_one_prompt_alone_is_read_by_one_dp_rank_and_passes_the_stages_in_turn() -> None:
    def alone_s(layout: Parallelism) -> float:
        costs = costs_of("llama-3.1-8b-instruct", "h100-sxm", layout=layout)
        return float(prefill_step(costs, ROOFLINE, prompt_tokens=8192, tokens_per_pass=4096).time_s)

    assert alone_s(Parallelism(dp=8)) == pytest.approx(alone_s(Parallelism()))
    # Two passes through two stages take three turns of half the work each.
    reads = 2 * 2 * (8_030_261_248 - 128_256 * 4096) / 3.35e12
    arithmetic = alone_s(Parallelism()) - reads
    assert alone_s(Parallelism(pp=2)) - reads == pytest.approx(arithmetic / 2 * 3 / 2)


def test_intensities_are_flop_over_bytes_whatever_the_precision() -> None:
    # 64 sequences on 16-bit projections: 2 FLOP x 64 / 2 bytes; on NVFP4 experts' 4.5 bits the batch is spread thin.
    result = answer("gpt-oss-120b", "gb200-nvl72", workload=WorkloadAsked(Length(512), Length(64), 64))
    assert result.crossover is not None
    intensities = {each.name: each.arithmetic_intensity_flop_per_byte for each in result.crossover.operators}
    assert intensities["projections"] == pytest.approx(64, rel=0.02)


def test_asked_arithmetic_holds_for_16_bit_weights_too() -> None:
    # BF16 weights multiplied at the NVFP4 rate: 1,250 FLOP/byte x 2 bytes / 2.
    result = answer("llama-3.1-8b-instruct", "gb200-nvl72", precision=PrecisionAsked(compute=Precision.NVFP4))
    assert result.crossover is not None
    assert result.crossover.weights_only_batch == 1250


def test_a_gpu_of_two_devices_divides_its_rates_among_them() -> None:
    gpu = accelerator("mi250x")
    device = device_of(gpu)
    assert gpu.devices_per_gpu == 2
    assert device.memory_capacity_bytes * 2 == gpu.memory_capacity_bytes
    assert device.gpu_count == 2 * gpu.gpu_count
    assert device_of(replace(gpu, devices_per_gpu=1)).gpu_count == gpu.gpu_count


def test_a_curve_takes_arrays_of_batches() -> None:
    curve: DecodeCurve = decode_curve(costs_of("gpt-oss-120b", "h200-sxm"), ROOFLINE, context_tokens=1000)
    times = curve.time_s(np.arange(1, 2000))
    assert times.shape == (1999,)
    assert (np.diff(times) > 0).all()
