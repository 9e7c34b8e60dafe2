"""The formulas for many measured runs at once, against the functions that answer a question."""

from functools import partial

import pytest

from service.sizing.costs import compute_rates, device_of, step_costs
from service.sizing.parallelism import Parallelism
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.prefill import prefill_step
from service.sizing.run_terms import Phase, RunSetup, engine_number, run_terms, stacked
from service.sizing.run_time import run_time
from service.sizing.serving import Load, ReplicaUnderLoad
from service.sizing.weights import served_weights
from tests.sizing.examples import accelerator
from tests.sizing.examples import model as language_model

CASES = [
    ("llama-3.3-70b-instruct", "h100-sxm", "fp8", "vLLM", Parallelism(tp=4)),
    ("llama-3.3-70b-instruct", "gb200-nvl72", "nvfp4", "TensorRT-LLM", Parallelism(tp=2, pp=2)),
    ("deepseek-v3", "b200-sxm", "fp8-block", "SGLang", Parallelism(tp=2, ep=8, dp=4)),
    ("deepseek-v3.2", "h200-sxm", "fp8-block", "vLLM", Parallelism(tp=8)),
    ("gpt-oss-120b", "h100-sxm", "mxfp4-experts", "vLLM", Parallelism(tp=2)),
]


def setup_of(case: tuple[str, str, str, str, Parallelism], phase: Phase) -> RunSetup:
    model, chip, scheme, engine, layout = case
    return RunSetup(
        phase=phase,
        model=language_model(model),
        accelerator=accelerator(chip),
        scheme=scheme,
        kv_cache=Precision.FP8,
        engine=engine,
        engine_version=None,
        parallelism=layout,
        isl_tokens=8000.0,
        osl_tokens=500.0,
        batch=1.0 if phase in (Phase.SINGLE_STREAM, Phase.PREFILL) else 48.0,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} on {case[1]}")
def test_many_runs_are_predicted_as_one_question_is(case: tuple[str, str, str, str, Parallelism]) -> None:
    model_name, chip, scheme, engine, layout = case
    model, device = language_model(model_name), device_of(accelerator(chip))
    weights = served_weights(model, scheme)
    rates = compute_rates(device, weights=weights, asked=None, density=Density.DENSE)
    costs = step_costs(
        model=model, weights=weights, device=device, parallelism=layout, kv_cache=Precision.FP8, rates=rates
    )
    parameters = StepParameters.fitted(("tensorrt-llm", "vllm", "sglang")[engine_number(engine)])
    load = Load(isl_tokens=8000.0, osl_tokens=500.0, cached_prefix_tokens=0, running_limit=1024, tokens_per_pass=8192)
    replica = ReplicaUnderLoad.of(costs, parameters, load, layer_count=model.layer_count)
    prompt = prefill_step(costs, parameters, prompt_tokens=8000, tokens_per_pass=8192)
    expected = {
        Phase.SERVING: replica.at(48).tpot_s,
        Phase.TTFT: replica.at(48).ttft_s,
        Phase.SINGLE_STREAM: replica.at(1).step_time_s,
        Phase.PREFILL: prompt.time_s,
        Phase.DISAGGREGATED: replica.curve.time_s(48),
    }
    predicted = run_time(stacked(run_terms(setup_of(case, phase)) for phase in expected))
    assert predicted.time_s.tolist() == pytest.approx(list(expected.values()))
    assert predicted.shares.sum(-1).tolist() == pytest.approx([1.0] * len(expected))


def test_a_static_batch_pays_its_prompts_among_its_tokens_and_offline_counts_per_token() -> None:
    case = CASES[0]
    terms = [run_terms(setup_of(case, phase)) for phase in (Phase.STATIC_BATCH, Phase.OFFLINE, Phase.SERVING)]
    static_s, offline_s, serving_s = run_time(stacked(terms)).time_s.tolist()
    assert offline_s == pytest.approx(static_s / 48)  # the same work, in seconds per token of 48 sequences
    assert static_s > serving_s  # vLLM stalls for 0.867 of the prompts' work, a static batch for all of it


def offline_batch(isl_tokens: float, osl_tokens: float, dp: int = 1) -> float:
    """80 GB class, Llama 3.1 8B in 16 bits."""
    setup = RunSetup(
        phase=Phase.OFFLINE,
        model=language_model("llama-3.1-8b-instruct"),
        accelerator=accelerator("h100-sxm"),
        scheme="bf16",
        kv_cache=Precision.BF16,
        engine="TensorRT-LLM",
        engine_version="1.2 (dev docs)",
        parallelism=Parallelism(dp=dp),
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        batch=None,
    )
    return float(run_terms(setup).batch)


def test_offline_runs_as_many_sequences_as_the_engine_has_memory_for() -> None:
    # 90 % of what 16.06e9 bytes of weights and 1 to 6 GB of activations and runtime leave; 131,072 bytes of KV a token,
    # and 1000 + 0.6 x 1000 tokens of a sequence
    free = accelerator("h100-sxm").usable_memory_bytes - 16_060_522_496
    least, most = (0.90 * (free - runtime) / (131_072 * 1600) for runtime in (6e9, 1e9))
    assert least < offline_batch(1000.0, 1000.0) < most


def test_offline_runs_no_more_sequences_than_the_engine_allows_by_default() -> None:
    # TensorRT-LLM builds for 2,048 sequences: 128 + 0.6 x 10 tokens of each would leave room for more than 3,000
    assert offline_batch(128.0, 10.0) == 2048
    assert offline_batch(128.0, 10.0, dp=2) == 2 * 2048


def llama_cpp_prefill_s(
    back_end: str, *, has_fused_attention: bool, isl_tokens: float = 512.0, engine_age_years: float = 0.0
) -> float:
    setup = RunSetup(
        phase=Phase.PREFILL,
        model=language_model("llama-3.1-8b-instruct"),
        accelerator=accelerator("strix-halo"),
        scheme="gguf-q8_0",
        kv_cache=Precision.BF16,
        engine="llama.cpp",
        engine_version=None,
        parallelism=Parallelism(),
        isl_tokens=isl_tokens,
        osl_tokens=1.0,
        batch=1.0,
        engine_age_years=engine_age_years,
        back_end=back_end,
        has_fused_attention=has_fused_attention,
    )
    return float(run_time(stacked([run_terms(setup)])).time_s[0])


def test_llama_cpp_without_fused_attention_moves_its_scores_through_memory() -> None:
    # 32 layers x 32 heads x 512 prompt tokens x 256 earlier ones on average x 4 bytes, 7.32 times, at 256 GB/s
    scores_s = 7.32 * 32 * 32 * 512 * 256 * 4 / 256e9
    unfused_s = llama_cpp_prefill_s("vulkan", has_fused_attention=False)
    assert unfused_s - llama_cpp_prefill_s("vulkan", has_fused_attention=True) == pytest.approx(scores_s)


def test_fused_attention_on_hip_was_slower_than_none_at_long_prompts() -> None:
    # 4 x 128 x 32 FLOP for each of 32 layers and 4096 x 2048 pairs at 59.4 TFLOP/s, 115 times; the scores, 7.32 passes
    vector_s = 115 * 4 * 128 * 32 * 32 * 4096 * 2048 / 59.4e12
    scores_s = 7.32 * 32 * 32 * 4096 * 2048 * 4 / 256e9
    in_2025 = partial(llama_cpp_prefill_s, "hip", isl_tokens=4096.0, engine_age_years=0.5)
    assert in_2025(has_fused_attention=True) - in_2025(has_fused_attention=False) == pytest.approx(vector_s - scores_s)


def test_fused_attention_on_hip_uses_matrix_units_since_2026() -> None:
    of_vulkan = partial(llama_cpp_prefill_s, "vulkan", isl_tokens=4096.0)
    of_hip = partial(llama_cpp_prefill_s, "hip", isl_tokens=4096.0)
    saved_s = of_hip(has_fused_attention=False) - of_hip(has_fused_attention=True)
    assert saved_s == pytest.approx(of_vulkan(has_fused_attention=False) - of_vulkan(has_fused_attention=True))
