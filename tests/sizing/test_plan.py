"""What is asked, what is assumed, and what is refused."""

import pytest

from service.errors import Invalid, ParallelismNotLegal, RateNotPublished, UnknownChoice
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Density, Precision
from service.sizing.question import (
    EngineAsked,
    PowerAsked,
    PrecisionAsked,
    SpeculationAsked,
    WorkloadAsked,
)
from service.sizing.remarks import WarningCode
from service.sizing.workload import Length, Statistic, Target
from tests.sizing.examples import answer, shipped, warning_codes

LLAMA, GB200, H100 = "llama-3.3-70b-instruct", "gb200-nvl72", "h100-sxm"


def test_every_default_is_listed_with_its_origin() -> None:
    assumed = {each.field: each for each in answer(LLAMA, GB200).resolved.remarks.assumptions}
    assert {
        "precision.weights",
        "precision.kv_cache",
        "precision.compute",
        "workload.isl_tokens",
        "workload.osl_tokens",
        "workload.concurrency",
        "parallelism",
        "engine.name",
        "engine.version",
        "engine.memory_fraction",
        "engine.max_model_len_tokens",
        "engine.max_num_batched_tokens",
        "engine.max_num_seqs",
        "engine.prefix_caching",
    } <= set(assumed)
    assert all(each.origin for each in assumed.values())
    assert assumed["workload.isl_tokens"].value == 1024
    # GB200 reports 189,471 MiB, above 160 GiB.
    assert assumed["engine.max_num_batched_tokens"].value == 16384


def test_what_is_given_is_not_assumed() -> None:
    result = answer(LLAMA, H100, engine=EngineAsked(memory_fraction=0.8, max_num_seqs=64), parallelism=Parallelism(4))
    fields = {each.field for each in result.resolved.remarks.assumptions}
    assert not fields & {"engine.memory_fraction", "engine.max_num_seqs", "parallelism"}
    assert result.resolved.deployment.settings.memory_fraction == 0.8


def test_auto_takes_the_fewest_devices_and_then_the_fastest_layout() -> None:
    # 141 GB of BF16 weights and the runtime need two H100; tp 2 reads half of the weights a step, pp 2 all of them.
    assert answer(LLAMA, H100).parallelism == Parallelism(tp=2)


@pytest.mark.parametrize("model_slug", ["llama-3.1-8b-instruct", "gpt-oss-120b", "deepseek-r1"])
def test_every_shipped_accelerator_answers_for_small_and_huge_models(model_slug: str) -> None:
    for entry in shipped().accelerators.in_use:
        result = answer(model_slug, entry.slug)
        assert result.fit.fits == (result.minimum_gpu_count is not None), entry.slug


def test_auto_never_proposes_what_no_link_can_join() -> None:
    # 235e9 BF16 parameters on 24 GB cards need 20 and more; eight share a host and nothing joins hosts.
    result = answer("qwen3-235b-a22b", "rtx-4090")
    assert not result.fit.fits
    assert result.minimum_gpu_count is None
    assert WarningCode.DOES_NOT_FIT in warning_codes(result)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Parallelism(tp=3), "tp"),  # 64 heads
        (Parallelism(tp=128), "tp"),
        (Parallelism(pp=81), "pp"),  # 80 layers
        (Parallelism(tp=2, ep=2), "ep"),  # no experts
    ],
)
def test_a_layout_that_does_not_divide_is_refused(asked: Parallelism, field: str) -> None:
    with pytest.raises(ParallelismNotLegal) as refused:
        answer(LLAMA, GB200, parallelism=asked)
    assert refused.value.field == ("parallelism", field)


def test_experts_have_to_divide_among_their_ranks() -> None:
    with pytest.raises(ParallelismNotLegal, match="ep 3 does not divide the tp x dp = 8"):
        answer("deepseek-v3", GB200, parallelism=Parallelism(tp=8, ep=3))


def test_a_replica_beyond_the_scale_up_domain_warns_and_runs_at_the_networks_speed() -> None:
    inside = answer(LLAMA, H100, parallelism=Parallelism(tp=8))
    outside = answer(LLAMA, H100, parallelism=Parallelism(tp=16))
    assert WarningCode.LEAVES_SCALE_UP_DOMAIN in warning_codes(outside)
    assert WarningCode.LEAVES_SCALE_UP_DOMAIN not in warning_codes(inside)


def test_devices_without_a_published_link_cannot_be_joined() -> None:
    with pytest.raises(ParallelismNotLegal, match="no published link"):
        answer("llama-3.1-8b-instruct", "apple-m4-max", parallelism=Parallelism(tp=2))


def test_fill_counts_replicas_and_idle_gpus_of_a_rack() -> None:
    replicas = answer(LLAMA, GB200, parallelism=Parallelism(tp=16), replica_count=None).replicas
    assert (replicas.gpu_count_per_replica, replicas.replica_count, replicas.idle_gpu_count) == (16, 4, 72 - 4 * 16)


def test_what_does_not_fit_fills_nothing() -> None:
    replicas = answer(LLAMA, H100, parallelism=Parallelism(), replica_count=None).replicas
    assert (replicas.replica_count, replicas.idle_gpu_count) == (0, 8)


def test_cards_of_a_host_are_filled_too() -> None:
    replicas = answer("qwen3-8b", "l40s", parallelism=Parallelism(tp=2), replica_count=None).replicas
    assert (replicas.replica_count, replicas.idle_gpu_count) == (4, 0)


def test_an_asked_number_of_replicas_leaves_the_rest_of_the_last_rack_idle() -> None:
    replicas = answer(LLAMA, GB200, parallelism=Parallelism(tp=16), replica_count=5).replicas
    assert replicas.idle_gpu_count == 2 * 72 - 5 * 16


def test_an_asked_precision_without_a_published_rate_is_refused() -> None:
    with pytest.raises(RateNotPublished, match="h100-sxm has no published dense rate at nvfp4"):
        answer(LLAMA, H100, precision=PrecisionAsked(weights="nvfp4", compute=Precision.NVFP4))


def test_a_format_without_a_native_path_computes_in_bf16_and_says_so() -> None:
    result = answer(LLAMA, H100, precision=PrecisionAsked(weights="nvfp4"))
    assert WarningCode.PRECISION_NOT_NATIVE in warning_codes(result)
    assert result.crossover is not None
    # 989.5 / 3.35 = 295 FLOP/byte at BF16, and half a byte a weight.
    assert result.crossover.balance_point_flop_per_byte == pytest.approx(989.5e12 / 3.35e12)
    assert result.crossover.weights_only_batch == pytest.approx(989.5e12 / 3.35e12 * 0.5 / 2)


def test_sparse_rates_are_used_only_when_asked_for_and_then_warned_about() -> None:
    result = answer(LLAMA, H100, precision=PrecisionAsked(weights="fp8"), density=Density.SPARSE)
    assert WarningCode.SPARSE_RATE_USED in warning_codes(result)
    assert result.crossover is not None
    assert result.crossover.balance_point_flop_per_byte == pytest.approx(3958e12 / 3.35e12)


def test_an_accelerator_without_dense_rates_still_answers_the_memory() -> None:
    result = answer("llama-3.1-8b-instruct", "cerebras-wse-3")
    assert WarningCode.RATE_NOT_PUBLISHED in warning_codes(result)
    assert result.fit.fits
    assert result.speed is None
    assert result.crossover is None


def test_a_lower_precision_than_the_checkpoints_leaves_quality_to_the_caller() -> None:
    assert WarningCode.QUALITY_UNVERIFIED in warning_codes(answer(LLAMA, GB200, precision=PrecisionAsked("nvfp4")))
    own = answer("llama-3.3-70b-instruct-awq", GB200)
    assert WarningCode.QUALITY_UNVERIFIED not in warning_codes(own)


def test_an_unknown_engine_version_takes_the_nearest_rules_and_says_so() -> None:
    result = answer(LLAMA, GB200, engine=EngineAsked(version="0.34.1"))
    assert WarningCode.ENGINE_VERSION_UNKNOWN in warning_codes(result)
    assert result.resolved.deployment.settings.release.version == "0.33.0"


@pytest.mark.parametrize(
    ("asked", "error", "field"),
    [
        ({"engine": EngineAsked(name="ollama")}, UnknownChoice, ("engine", "name")),
        ({"precision": PrecisionAsked(weights="fp5")}, UnknownChoice, ("precision", "weights")),
        ({"precision": PrecisionAsked(kv_cache=Precision.FP64)}, UnknownChoice, ("precision", "kv_cache")),
        (
            {"workload": WorkloadAsked(Length(100), Length(10), cached_prefix_tokens=100)},
            Invalid,
            ("workload", "cached_prefix_tokens"),
        ),
        ({"workload": WorkloadAsked(Length(131_072), Length(1))}, Invalid, ("workload",)),
        ({"target": Target(statistic=Statistic.P99)}, Invalid, ("target", "statistic")),
        (
            {"target": Target(tpot_s=0.1), "workload": WorkloadAsked(Length(9), Length(1))},
            Invalid,
            ("target", "tpot_s"),
        ),
        ({"power": PowerAsked(limit_w_per_gpu=100)}, Invalid, ("power", "limit_w_per_gpu")),
        (
            {"speculation": SpeculationAsked("ngram", 2, 3.5)},
            Invalid,
            ("speculation", "acceptance_length_tokens"),
        ),
    ],
)
def test_contradictions_and_unknown_words_are_refused_at_their_field(
    asked: dict[str, object], error: type[Invalid], field: tuple[str, ...]
) -> None:
    with pytest.raises(error) as refused:
        answer(LLAMA, GB200, **asked)
    assert refused.value.field == field


def test_a_power_limit_below_the_rating_slows_arithmetic_by_its_cube_root() -> None:
    result = answer(LLAMA, GB200, power=PowerAsked(limit_w_per_gpu=600), workload=WorkloadAsked(concurrency=8))
    assert WarningCode.POWER_LIMIT_MODELLED in warning_codes(result)
    assert result.speed is not None
    assert result.speed.clock_fraction == pytest.approx((600 / 1200) ** (1 / 3))
    assert result.crossover is not None
    assert result.crossover.balance_point_flop_per_byte == 312.5  # at printed rates all the same


def test_a_step_without_cuda_graphs_has_no_speed_and_says_so() -> None:
    result = answer(LLAMA, GB200, engine=EngineAsked(cuda_graphs=False))
    assert result.fit.fits
    assert result.speed is None
    assert WarningCode.SPEED_NOT_MODELLED in warning_codes(result)


def test_a_power_limit_above_the_rating_changes_nothing_and_says_so() -> None:
    limited = answer(LLAMA, GB200, power=PowerAsked(limit_w_per_gpu=5000))
    assert WarningCode.POWER_LIMIT_MODELLED in warning_codes(limited)
    assert limited.powers == answer(LLAMA, GB200).powers


def test_an_answer_that_rests_on_unverified_figures_names_them() -> None:
    # MI455X: dense FP8 is half of a figure that its page does not label.
    result = answer("qwen3-8b", "mi455x", precision=PrecisionAsked(weights="fp8"))
    warning = next(w for w in result.resolved.remarks.warnings if w.code is WarningCode.FIGURE_UNVERIFIED)
    assert "peak_rates.fp8.dense" in warning.detail
    assert WarningCode.FIGURE_UNVERIFIED not in warning_codes(answer(LLAMA, H100))


def test_shared_memory_is_said_to_be_shared() -> None:
    assert WarningCode.MEMORY_IS_SHARED in warning_codes(answer("qwen3-8b", "dgx-spark-gb10"))


def test_the_same_question_has_the_same_answer() -> None:
    assert answer(LLAMA, GB200).speed == answer(LLAMA, GB200).speed
