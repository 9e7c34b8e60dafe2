from collections import Counter
from dataclasses import replace

from service.catalogue.benchmark_evidence import evidence_runs, is_usable, measurements
from service.catalogue.benchmark_facts import mlperf_results, published_runs
from service.sizing.engines.engine import plain_version
from service.sizing.evidence import EvidenceStore
from service.sizing.run_terms import Phase
from tests.sizing.examples import shipped


def test_every_published_run_is_there_with_its_source() -> None:
    runs = published_runs()
    assert len(runs) == 3585 + 5643 + 6  # two collections and the founding documents
    assert all(run.source and run.series and run.scenario for run in runs)
    assert len(mlperf_results()) == 693


def test_times_are_seconds_and_the_unknown_is_none() -> None:
    run = next(run for run in published_runs() if run.scenario == "prefill-latency")
    assert run.ttft_s is not None
    assert 0.001 < run.ttft_s < 60
    assert run.power_w is None
    assert all(run.output_tokens_per_s != 0 for run in published_runs())


def test_a_release_has_the_name_that_filters_know_it_by() -> None:
    versions = {run.engine_version for run in published_runs() if run.engine_version}
    assert {"6918", "9187 vulkan_radv"} <= versions
    assert versions == {plain_version(version) for version in versions}


def test_accelerators_are_slugs_of_the_catalogue_or_absent() -> None:
    known = set(shipped().accelerators.by_slug)
    assert {run.accelerator for run in published_runs()} - {None} <= known
    assert {result.accelerator for result in mlperf_results()} - {None} <= known


def test_the_founding_runs_say_what_was_inferred() -> None:
    founding = [run for run in published_runs() if run.series.startswith("founding")]
    assert len(founding) == 6
    assert all("accelerator" in run.inferred and not is_usable(run) for run in founding)
    assert {run.weights for run in founding if run.model.startswith("Qwen3-Coder")} == {None}


def test_flagged_runs_are_kept_and_left_out_of_evidence() -> None:
    flagged = [run for run in published_runs() if run.flag and not is_usable(run)]
    assert len(flagged) > 1000
    assert measurements(flagged[:200], shipped()).usable == ()


def test_a_run_is_used_where_each_of_its_remarks_is_harmless() -> None:
    run = next(run for run in published_runs() if run.flag is None)
    harmless = "secondary source; power mean may include loading and warm-up"
    assert is_usable(replace(run, flag=harmless))
    assert not is_usable(replace(run, flag=f"{harmless}; accelerator count and load unknown"))


def test_sweeps_that_only_a_drafting_configuration_makes_are_no_evidence() -> None:
    """InferenceX exports do not say which rows drafted; its configurations do, by layout and by concurrency.

    Of SGLang 0.5.9 on B200 in FP8: dsr1-fp8-b200-sglang ends at 64 requests and its twin with multi-token prediction at
    512 (TP8), and of Qwen3.5-397B only the one with multi-token prediction has TP4 without expert parallelism (pull
    requests 804 and 897).
    """
    drafted = [run for run in published_runs() if (run.flag or "").startswith("speculative decoding (MTP) by its")]
    assert Counter(run.model for run in drafted) == {"Qwen3.5-397B-A17B": 21, "DeepSeek-R1": 8}
    assert {(run.tp, run.ep) for run in drafted} == {("4", "1"), ("8", "1")}
    assert not any(is_usable(run) for run in drafted)


def test_mlperf_limits_are_those_of_its_rules() -> None:
    # MLPerf Inference, llama2-70b: Server 2000 ms TTFT and 200 ms TPOT, Interactive 450 and 40, at p99
    limits = {
        (result.scenario, result.ttft_p99_limit_s, result.tpot_p99_limit_s)
        for result in mlperf_results()
        if result.model == "llama2-70b"
    }
    assert limits == {("Offline", None, None), ("Server", 2.0, 0.2), ("Interactive", 0.45, 0.04)}


def test_llama_cpp_runs_take_back_end_and_attention_from_their_words() -> None:
    runs = [run for run in published_runs() if run.series in ("75a8d50efb98", "90f4ad2470f5")]  # HIP off, Vulkan on
    found = {
        (each.configuration.engine, each.setup.has_fused_attention) for each in measurements(runs, shipped()).usable
    }
    assert found == {("llama.cpp hip unfused", False), ("llama.cpp vulkan", True)}


def test_a_users_run_of_llama_bench_says_the_same_in_other_words() -> None:
    example = next(run for run in published_runs() if run.series == "75a8d50efb98")
    told = replace(example, engine_version="10743", meaning="back end Vulkan, flash attention off")
    (mine,) = measurements([told], shipped()).usable
    assert mine.configuration.engine == "llama.cpp vulkan unfused"
    untold = replace(told, meaning=None, accelerator="rtx-4090", measured_on="2026-01")
    (mine,) = measurements([untold], shipped()).usable
    assert mine.configuration.engine == "llama.cpp cuda"


def test_more_requests_than_memory_could_hold_are_left_out_whatever_they_took() -> None:
    # Qwen3-32B in 4 bits on two GB200 of 186 GB: 448 sequences of 15,300 tokens x 64 layers x 2,048 bytes are 0.9 TB
    name = "qwen3_32b_nvfp4_gb200_trtllm_agg_15000x500_c448"
    runs = [run for run in published_runs() if name in (run.source_ref or "")]
    found = measurements(runs, shipped())
    assert found.usable == ()
    assert found.left_out == {"more than twice the requests that the stated devices hold": 2 * len(runs)}
    fewer = [replace(run, concurrency=224.0) for run in runs]
    assert len(measurements(fewer, shipped()).usable) == 2 * len(runs) > 0


def test_shipped_runs_become_evidence() -> None:
    runs = evidence_runs(measurements(published_runs(), shipped()).usable)
    kept = EvidenceStore.of(runs).run_count
    assert kept > 3500
    assert len(runs) - kept < 0.05 * kept


def test_what_is_left_out_says_why() -> None:
    found = measurements(published_runs(), shipped())
    phases = Counter(each.setup.phase for each in found.usable)
    assert set(phases) == set(Phase)
    assert all(why for why in found.left_out)
