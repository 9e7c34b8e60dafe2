"""MLPerf: LoadGen's logs, system.json beside them, and the results repositories' summary.

The figures are those of github.com/mlcommons/inference, tools/submission/directory_structure_samples/sample_1, at
b66003e, in logs written anew with the lines that an importer reads.
"""

import io
import json
from typing import Any

import pytest

from service.imports import Ask, FileReport, Kind, Meaning, Metadata, QualityFlag, Scenario, import_files
from tests.imports.reading import MEAN, P99, near, only_run, percentile, read, value


def summary_log(**changes: str) -> str:
    lines = {
        "SUT name": "PySUT",
        "Scenario": "Server",
        "Mode    ": "PerformanceOnly",
        "Completed samples per second   ": "81.68",
        "Completed tokens per second": "24593.77",
        "Result is": "VALID",
        "Mean latency (ns)              ": "43579602295",
        "99.00 percentile latency (ns)  ": "136069232834",
        "Completed tokens per second                ": "24593.77",
        "Mean First Token latency (ns)              ": "918456323",
        "99.00 percentile first token latency (ns)  ": "1914647645",
        "99.90 percentile first token latency (ns)  ": "2562462764",
        "Mean Time to Output Token (ns)             ": "144594078",
        "99.00 percentile time to output token (ns) ": "193380124",
        "target_qps": "83.5",
        "ttft_latency (ns)": "2000000000",
        "tpot_latency (ns)": "200000000",
        **changes,
    }
    head = "=" * 48 + "\nMLPerf Results Summary\n" + "=" * 48 + "\n"
    return head + "\n".join(f"{name} : {text}" for name, text in lines.items())


def mllog(**values: Any) -> str:
    return "".join(
        f':::MLLOG {{"key": {json.dumps(key)}, "value": {json.dumps(each)}, "time_ms": 0.0, "namespace": "mlperf"}}\n'
        for key, each in values.items()
    )


DETAIL = mllog(
    loadgen_version="5.1.0 @ 091d51f041",
    test_datetime="2025-07-31T09:26:03Z",
    effective_samples_per_query=1,
    generated_samples_per_query=1,
    result_query_count=73728,
)
SYSTEM = {
    "accelerator_model_name": "AMD Instinct MI300X 192GB HBM3",
    "accelerators_per_node": 8,
    "number_of_nodes": 1,
    "framework": "vLLM 0.9.0.2",
    "submitter": "AMD",
    "division": "closed",
    "status": "available",
    "system_name": "Supermicro AS-8125GS-TNMR2",
}


def upload(**files: str) -> dict[str, FileReport]:
    """The reports of files whose names have "__" for a dot and "___" for a slash."""
    named = {name.replace("___", "/").replace("__", "."): text for name, text in files.items()}
    reports = import_files([(name, io.BytesIO(text.encode())) for name, text in named.items()])
    return {report.name: report for report in reports}


def test_nanoseconds_and_both_spellings_of_a_line_are_read() -> None:
    report = read(summary_log())
    run = only_run(report)
    assert run.scenario is Scenario.MLPERF_SERVER
    assert value(run, Meaning.TTFT, MEAN) == near(0.918456323)
    assert value(run, Meaning.TTFT, percentile(99.9)) == near(2.562462764)
    assert value(run, Meaning.TPOT, P99) == near(0.193380124)
    assert value(run, Meaning.E2E_LATENCY, P99) == near(136.069232834)
    assert value(run, Meaning.OUTPUT_RATE) == 24593.77
    assert run.osl_mean_tokens == near(24593.77 / 81.68)
    assert run.request_rate_per_s == 83.5
    assert run.mlperf is not None
    assert (run.mlperf.ttft_limit_s, run.mlperf.tpot_limit_s) == (near(2.0), near(0.2))
    assert report.missing == (Ask.MODEL, Ask.ISL_TOKENS, Ask.PRECISION, Ask.ACCELERATOR, Ask.GPU_COUNT)


def test_the_latencies_of_an_offline_run_are_its_queue_and_are_left_out() -> None:
    run = only_run(read(summary_log(Scenario="Offline")))
    assert run.scenario is Scenario.MLPERF_OFFLINE
    assert {metric.meaning for metric in run.metrics} == {Meaning.OUTPUT_RATE, Meaning.REQUEST_RATE}
    assert run.request_rate_per_s is None


def test_an_interactive_run_logs_server_and_is_told_by_its_directory_or_its_limits() -> None:
    by_directory = only_run(read(summary_log(), "interactive-gb200/mlperf_log_summary.txt"))
    limits = {"ttft_latency (ns)": "450000000", "tpot_latency (ns)": "40000000"}
    by_limits = only_run(read(summary_log(**limits)))
    for run in (by_directory, by_limits):
        assert run.scenario is Scenario.MLPERF_INTERACTIVE
        assert run.mlperf is not None
        assert run.mlperf.scenario_as_logged == "Server"


def test_an_invalid_result_survives_and_says_so() -> None:
    report = read(summary_log(**{"Result is": "INVALID"}))
    run = only_run(report)
    assert run.mlperf is not None
    assert run.mlperf.valid is False
    assert QualityFlag.INVALID in run.flags
    assert any("INVALID" in warning for warning in report.warnings)


def test_a_log_without_its_verdict_was_cut_off() -> None:
    text = summary_log()
    report = read(text[: text.index("Result is")])
    assert not report.accepted
    assert report.reason is not None
    assert "Result is" in report.reason


def test_detail_log_and_system_beside_the_summary_fill_version_time_and_hardware() -> None:
    reports = upload(
        mlperf_log_summary__txt=summary_log(), mlperf_log_detail__txt=DETAIL, system__json=json.dumps(SYSTEM)
    )
    run = only_run(reports["mlperf_log_summary.txt"])
    assert run.tool_version == "5.1.0 @ 091d51f041"
    assert run.started_at is not None
    assert run.started_at.isoformat() == "2025-07-31T09:26:03+00:00"
    assert run.completed_count == 73728
    assert (run.accelerator_name, run.accelerator_count) == ("AMD Instinct MI300X 192GB HBM3", 8)
    assert run.mlperf is not None
    assert (run.mlperf.submitter, run.mlperf.division) == ("AMD", "closed")
    assert reports["system.json"].accepted
    assert reports["mlperf_log_summary.txt"].missing == (Ask.MODEL, Ask.ISL_TOKENS, Ask.PRECISION)


def test_a_submissions_tree_names_the_model_and_leads_to_the_system() -> None:
    here = "closed___AMD___results___8xMI300X___llama2-70b-99___Server___performance___run_1___"
    reports = upload(
        **{
            f"{here}mlperf_log_summary__txt": summary_log(),
            f"{here}mlperf_log_detail__txt": DETAIL,
            "closed___AMD___systems___8xMI300X__json": json.dumps(SYSTEM),
        }
    )
    run = only_run(next(report for report in reports.values() if report.runs))
    assert run.model_name == "llama2-70b-99"
    assert run.accelerator_count == 8


def test_a_detail_log_alone_belongs_to_nothing() -> None:
    report = read(DETAIL)
    assert report.kind is Kind.MLPERF_DETAIL_LOG
    assert not report.accepted


ROW = {
    "ID": "5.1-0001",
    "Submitter": "AMD",
    "Availability": "available",
    "Category": "closed",
    "System": "Supermicro AS-8125GS-TNMR2",
    "UsedModel": "llama2-70b-99",
    "Scenario": "Interactive",
    "Accuracy": "ROUGE1: 44.4542  TOKENS_PER_SAMPLE: 301.1",
    "Nodes": 1,
    "Accelerator": "AMD Instinct MI300X 192GB HBM3",
    "a#": 8,
    "Software": "vLLM 0.9.0.2",
    "version": "v5.1",
    "inferred": 0,
    "weight_data_types": "fp8",
    "Performance_Result": 8840.42,
    "Performance_Units": "Tokens/s",
}


def test_a_results_summary_gives_a_run_for_each_row_of_a_language_model() -> None:
    images = {**ROW, "UsedModel": "resnet", "a#": "", "Performance_Units": "Samples/s"}
    report = read(json.dumps([ROW, images]), metadata=Metadata())
    run = only_run(report)
    assert run.scenario is Scenario.MLPERF_INTERACTIVE
    assert value(run, Meaning.OUTPUT_RATE) == 8840.42
    assert run.osl_mean_tokens == 301.1
    assert (run.accelerator_count, run.weight_precision, run.model_name) == (8, "fp8", "llama2-70b-99")
    assert report.warnings == ("1 rows are not in tokens a second and were left out",)
    assert report.missing == ()


@pytest.mark.parametrize(
    ("changes", "count"),
    [({"Nodes": 18, "a#": 4}, 18 * 4), ({"Nodes": 11, "Accelerator": "AMD MI355X (x87)"}, 87), ({"a#": ""}, None)],
)
def test_accelerators_are_those_of_a_node_times_the_nodes_unless_the_name_counts_them(
    changes: dict[str, Any], count: int | None
) -> None:
    assert only_run(read(json.dumps([{**ROW, **changes}]))).accelerator_count == count
