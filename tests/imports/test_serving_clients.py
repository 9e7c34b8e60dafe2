"""vLLM and SGLang: files that the tools themselves wrote against a mock, and their traps one by one."""

import json
import math

import pytest

from service.imports import Ask, ConcurrencyBasis, Kind, Meaning, Metadata, QualityFlag, Scenario
from tests.imports.reading import MEAN, OVERALL, P50, P99, near, only_run, percentile, read, sample, value, vllm_serve


def test_the_result_of_vllm_serve_is_read_in_base_units() -> None:
    report = sample("vllm-serve-0.33.0.json")
    run = only_run(report)
    assert report.kind is Kind.VLLM_SERVE
    assert (run.engine, run.engine_version, run.model_name) == ("vllm", None, "acme/tiny-8b-instruct")
    assert run.isl_mean_tokens == near(139 / 24)
    assert run.osl_mean_tokens == near(768 / 24)
    assert value(run, Meaning.TTFT, MEAN) == near(0.05121654187497408)
    assert value(run, Meaning.OUTPUT_RATE) == near(457.3902486380632)
    assert value(run, Meaning.TOTAL_RATE) == near(540.173119159796)
    assert value(run, Meaning.TTFT, percentile(90)) is None
    assert (run.completed_count, run.failed_count) == (24, 0)
    assert run.local_finished_at == "2026-12-01T19:55:53"
    assert run.started_at is None
    assert dict(run.extras) == {"tensor_parallel_size": "1", "gpu": "none"}
    assert report.missing == (Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ENGINE_VERSION)


def test_tpot_and_the_pooled_gap_of_vllm_are_two_metrics_though_their_means_agree() -> None:
    run = only_run(sample("vllm-serve-0.33.0.json"))
    assert value(run, Meaning.TPOT, MEAN) == value(run, Meaning.INTER_CHUNK_GAP, MEAN) == near(0.007249290299731696)
    assert value(run, Meaning.TPOT, P99) == near(0.009156752625808474)
    assert value(run, Meaning.INTER_CHUNK_GAP, P99) == near(0.027997083059995024)
    keys = {metric.source_key for metric in run.metrics if metric.meaning is Meaning.INTER_CHUNK_GAP}
    assert "mean_itl_ms" in keys


def test_a_peak_of_requests_in_a_second_is_not_taken_for_the_concurrency() -> None:
    report = sample("vllm-serve-0.33.0.json")
    assert only_run(report).concurrency == 4
    assert any("max_concurrent_requests (16)" in warning for warning in report.warnings)


def test_an_older_vllm_leaves_failures_to_be_counted_and_the_engine_to_be_asked() -> None:
    report = sample("vllm-serve-0.10.2.json")
    run = only_run(report)
    assert run.failed_count == 16 - 16
    assert run.engine is None
    assert Ask.ENGINE in report.missing
    assert run.accelerator_count is None
    assert report.suggested == {"gpu_count": 8}  # from tensor_parallel_size, which the user wrote as a text


def test_zeros_of_a_run_in_which_nothing_completed_are_no_measurements() -> None:
    zeros = dict.fromkeys(("mean_ttft_ms", "p99_ttft_ms", "output_throughput", "total_token_throughput"), 0.0)
    report = read(vllm_serve(completed=0, failed=24, total_output_tokens=0, **zeros))
    assert not report.accepted
    assert report.reason is not None
    assert "no request completed" in report.reason


def test_a_zero_beside_real_figures_is_left_out() -> None:
    run = only_run(read(vllm_serve(mean_ttft_ms=0.0, median_ttft_ms=0.0, p99_ttft_ms=0.0, std_ttft_ms=0.0)))
    assert {metric.meaning for metric in run.metrics} == {
        Meaning.TPOT,
        Meaning.INTER_CHUNK_GAP,
        Meaning.OUTPUT_RATE,
        Meaning.TOTAL_RATE,
        Meaning.REQUEST_RATE,
    }


@pytest.mark.parametrize(
    ("rate", "limit", "scenario"),
    [
        ("inf", 4, Scenario.CLOSED_LOOP),
        ("inf", 1, Scenario.SINGLE_STREAM),
        ("inf", None, Scenario.OFFLINE_MAX),
        (2.5, None, Scenario.OPEN_LOOP),
        (2.5, 8, Scenario.OPEN_LOOP),
    ],
)
def test_how_requests_were_offered_follows_from_rate_and_limit(
    rate: str | float, limit: int | None, scenario: Scenario
) -> None:
    run = only_run(read(vllm_serve(request_rate=rate, max_concurrency=limit)))
    assert run.scenario is scenario
    assert run.request_rate_per_s == (math.inf if rate == "inf" else rate)
    assert (QualityFlag.CAPPED_OPEN_LOOP in run.flags) == (rate == 2.5 and limit == 8)


def test_goodput_is_read_under_its_old_key_with_a_colon() -> None:
    run = only_run(read(vllm_serve(**{"request_goodput": ..., "request_goodput:": 3.5})))
    assert value(run, Meaning.GOODPUT) == 3.5
    assert value(only_run(read(vllm_serve())), Meaning.GOODPUT) is None


def test_the_spread_of_lengths_leaves_out_the_zeros_of_failed_requests() -> None:
    run = only_run(read(vllm_serve(output_lens=[30, 34, 0, 0])))
    assert run.osl_std_tokens == near(2.0)  # of 30 and 34: both are 2 from their mean 32


def test_a_file_of_many_results_gives_a_run_each_and_drops_the_empty_ones() -> None:
    lines = [json.dumps(vllm_serve(max_concurrency=limit)) for limit in (1, 8)]
    lines.append(json.dumps(vllm_serve(max_concurrency=512, completed=0, failed=24)))
    report = read("\n".join(lines))
    assert [run.concurrency for run in report.runs] == [1, 8]
    assert any("record 3: nothing was measured" in warning for warning in report.warnings)


def test_a_figure_of_the_wrong_kind_refuses_the_file_by_its_key() -> None:
    report = read(vllm_serve(mean_ttft_ms="fast"))
    assert not report.accepted
    assert report.reason == "record 1, mean_ttft_ms: a number is expected, not 'fast'"


def test_the_latency_of_a_batch_in_seconds_needs_batch_and_lengths_from_the_caller() -> None:
    report = sample("vllm-latency.json")
    run = only_run(report)
    assert run.scenario is Scenario.STATIC_BATCH
    assert value(run, Meaning.E2E_LATENCY, MEAN) == near(1.222540455824004)
    assert value(run, Meaning.E2E_LATENCY, P99) == near(1.249)
    assert {Ask.BATCH, Ask.ISL_TOKENS, Ask.OSL_TOKENS, Ask.MODEL} <= set(report.required)
    filled = only_run(sample("vllm-latency.json", Metadata(batch=8, isl_tokens=1024, osl_tokens=128)))
    assert (filled.concurrency, filled.concurrency_basis) == (8, ConcurrencyBasis.BATCH)


def test_vllm_throughput_counts_the_prompt_and_gives_the_output_rate_once_the_length_is_said() -> None:
    report = sample("vllm-throughput.json")
    assert value(only_run(report), Meaning.TOTAL_RATE) == 9216.0
    assert value(only_run(report), Meaning.OUTPUT_RATE) is None
    assert Ask.OUTPUT_TOKENS_PER_S in report.missing
    filled = sample("vllm-throughput.json", Metadata(isl_tokens=1024, osl_tokens=128))
    assert value(only_run(filled), Meaning.OUTPUT_RATE) == near(100 * 128 / 12.5)  # requests * length / elapsed
    assert Ask.OUTPUT_TOKENS_PER_S not in filled.missing


def test_sglang_writes_the_bare_word_infinity_and_no_total_rate() -> None:
    run = only_run(sample("sglang-serving-0.4.6.jsonl"))
    assert run.request_rate_per_s == math.inf
    assert run.model_name is None
    assert value(run, Meaning.TOTAL_RATE) == near(267.5619858563975 + 244.12267139294448)
    assert value(run, Meaning.INTER_CHUNK_GAP, percentile(95)) == near(0.04125022639998405)


def test_the_measured_concurrency_of_sglang_stands_beside_the_limit() -> None:
    run = only_run(sample("sglang-serving-0.5.5.jsonl"))
    assert (run.concurrency, run.concurrency_basis) == (4, ConcurrencyBasis.LIMIT)
    assert value(run, Meaning.MEASURED_CONCURRENCY) == near(3.326730340416376)
    assert (run.model_name, run.tp, run.engine_version) == ("acme/tiny-8b-instruct", 1, "0.0.0-mock")


SGLANG = {"backend": "sglang", "dataset_name": "random", "random_input_len": 64, "duration": 1.0, "completed": 10}


@pytest.mark.parametrize(
    ("records", "limits", "said"),
    [
        ([{"max_concurrency": 4, "concurrency": 3.5}], [4], ["a run's concurrency is the file's max_concurrency"]),
        ([{"max_concurrency": None, "concurrency": 9.5}], [None], ["without max_concurrency nothing limits"]),
        ([{"concurrency": 9.5}], [None], ["without max_concurrency nothing limits"]),
        ([{"max_concurrency": 4}], [4], []),
        (
            [{"max_concurrency": 4, "concurrency": 3.5}, {"max_concurrency": None, "concurrency": 9.5}],
            [4, None],
            ["a run's concurrency is the file's max_concurrency", "without max_concurrency nothing limits"],
        ),
    ],
)
def test_what_is_said_of_the_concurrency_of_sglang_is_true_of_the_file(
    records: list[dict[str, float | None]], limits: list[int | None], said: list[str]
) -> None:
    report = read("\n".join(json.dumps({**SGLANG, "output_throughput": 99.0, **record}) for record in records))
    assert [run.concurrency for run in report.runs] == limits
    assert len(report.warnings) == len(said)
    assert all(warning.startswith(start) for warning, start in zip(report.warnings, said, strict=True))
    assert [value(run, Meaning.MEASURED_CONCURRENCY) for run in report.runs] == [
        record.get("concurrency") for record in records
    ]


def test_sglang_says_no_time_and_no_failures_and_both_are_asked_for() -> None:
    report = sample("sglang-serving-0.5.5.jsonl")
    assert {Ask.STARTED_AT, Ask.FAILED_COUNT} <= set(report.missing)
    assert Ask.FAILED_COUNT not in sample("sglang-serving-0.5.5.jsonl", Metadata(failed_count=0)).missing


def test_token_counts_far_apart_are_flagged() -> None:
    record = {
        "backend": "sglang",
        "dataset_name": "random",
        "random_input_len": 64,
        "request_rate": 4.0,
        "max_concurrency": None,
        "duration": 1.0,
        "completed": 10,
        "total_input_tokens": 640,
        "total_output_tokens": 10,
        "total_output_tokens_retokenized": 1000,
        "output_throughput": 10.0,
        "input_throughput": 640.0,
    }
    report = read(record)
    run = only_run(report)
    assert QualityFlag.TOKEN_COUNTS_DISAGREE in run.flags
    assert run.extras["total_output_tokens_retokenized"] == "1000"
    assert run.scenario is Scenario.OPEN_LOOP


def test_one_batch_keeps_the_decode_step_apart_from_tpot_and_the_overall_rate_from_the_output_rate() -> None:
    run = only_run(sample("sglang-one-batch.jsonl"))
    assert value(run, Meaning.DECODE_STEP, P50) == near(0.0081)
    assert value(run, Meaning.TPOT, P50) is None
    assert value(run, Meaning.DECODE_RATE) == near(987.65)  # 8 sequences / 0.0081 s
    assert value(run, Meaning.TOTAL_RATE) == near(24835.8)  # (8 * (1024 + 16)) tokens / 0.335 s
    assert value(run, Meaning.OUTPUT_RATE, OVERALL) is None
    assert value(run, Meaning.PREFILL_RATE) == near(39009.5)
