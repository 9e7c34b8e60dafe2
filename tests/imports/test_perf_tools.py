"""AIPerf, GenAI-Perf, GuideLLM, LLMPerf, TensorRT-LLM and InferenceX."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from service.imports import Ask, ConcurrencyBasis, Kind, Meaning, Metadata, QualityFlag, Scenario
from tests.imports.reading import MEAN, OVERALL, P50, P99, SAMPLES, near, only_run, percentile, read, sample, value


def stats(unit: str, **values: float) -> dict[str, Any]:
    return {"unit": unit, **values}


# Figures of a public run: github.com/anud18/qwen36-vllm-aiperf-benchmark, results/nvfp4/5090/agent/c16, at d254ffc.
AIPERF: dict[str, Any] = {
    "schema_version": "1.3",
    "aiperf_version": "0.10.0",
    "time_to_first_token": stats("ms", avg=230.13715230208334, p50=177.785533, p99=687.6198782499999, count=96),
    "inter_token_latency": stats("ms", avg=11.847342175364519, p50=12.245986588621273, p99=13.272469915788289),
    "inter_chunk_latency": stats("ms", avg=11.988285643080944, p50=9.08178129458742, p99=117.98615575276864, min=0.0),
    "request_latency": stats("ms", avg=6726.664069072916, p50=6478.6263245, p99=18625.4480323),
    "request_throughput": stats("requests/sec", avg=2.156207775934887),
    "output_token_throughput": stats("tokens/sec", avg=1172.145991694937),
    "total_token_throughput": stats("tokens/sec", avg=9282.317251916027),
    "output_token_throughput_per_user": stats("tokens/sec/user", avg=85.65691328980826, p99=131.4556432264988),
    "request_count": stats("requests", avg=96.0),
    "output_sequence_length": stats("tokens", avg=543.6145833333334, std=353.27781707506966),
    "input_sequence_length": stats("tokens", avg=3761.3125, std=2708.352783183366),
    "benchmark_duration": stats("sec", avg=44.52261098),
    "telemetry_data": {"endpoints": {}},
    "input_config": {
        "models": {"items": [{"name": "qwen3.6-nvfp4"}]},
        "phases": [
            {"name": "warmup", "exclude_from_results": True, "concurrency": 2},
            {"name": "profiling", "concurrency": 16},
        ],
    },
    "was_cancelled": False,
    "error_summary": [],
    "start_time": "2026-07-03T05:21:36.274997",
    "end_time": "2026-07-03T05:22:20.808822",
}


def test_aiperf_names_tpot_inter_token_latency_and_the_gap_inter_chunk_latency() -> None:
    run = only_run(read(AIPERF))
    assert value(run, Meaning.TPOT, MEAN) == near(0.011847342175364519)
    assert value(run, Meaning.INTER_CHUNK_GAP, P99) == near(0.11798615575276864)
    assert value(run, Meaning.E2E_LATENCY, P50) == near(6.4786263245)


def test_aiperf_takes_the_concurrency_of_the_phase_whose_requests_count() -> None:
    run = only_run(read(AIPERF))
    assert (run.concurrency, run.scenario) == (16, Scenario.CLOSED_LOOP)


def test_aiperf_without_a_gpu_in_its_telemetry_asks_for_the_hardware() -> None:
    report = read(AIPERF)
    assert report.missing == (Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ENGINE)
    telemetry = {"endpoints": {"http://a": {"gpus": {f"gpu_{i}": {"gpu_name": "NVIDIA H200"} for i in range(2)}}}}
    run = only_run(read({**AIPERF, "telemetry_data": telemetry}))
    assert (run.accelerator_name, run.accelerator_count) == ("NVIDIA H200", 2)


def test_a_time_without_a_zone_becomes_a_time_once_the_caller_says_the_zone() -> None:
    run = only_run(read(AIPERF))
    assert (run.started_at, run.local_started_at) == (None, "2026-07-03T05:21:36.274997")
    zoned = only_run(read(AIPERF, metadata=Metadata(utc_offset=timedelta(hours=2))))
    assert zoned.started_at is not None
    assert zoned.started_at.astimezone(UTC) == datetime(2026, 7, 3, 3, 21, 36, 274997, tzinfo=UTC)


def test_an_offset_that_no_time_of_the_upload_needs_is_said_to_change_nothing() -> None:
    said = Metadata(utc_offset=timedelta(hours=2))
    placed = read({**AIPERF, "start_time": "2026-07-03T05:21:36Z", "end_time": "2026-07-03T05:22:36Z"}, metadata=said)
    assert "`utc_offset` changed nothing: no file of this upload states a time without its zone" in placed.warnings
    assert only_run(placed).started_at == datetime(2026, 7, 3, 5, 21, 36, tzinfo=UTC)
    assert not any("utc_offset" in warning for warning in read(AIPERF, metadata=said).warnings)


def test_errors_of_aiperf_are_not_completed_requests() -> None:
    counts = {"error_request_count": stats("requests", avg=4), "completed_request_count": stats("requests", avg=100)}
    run = only_run(read({**AIPERF, **counts, "is_complete": False}))
    assert (run.completed_count, run.failed_count) == (96, 4)
    assert {QualityFlag.HAD_FAILURES, QualityFlag.HAD_INCOMPLETE} <= set(run.flags)


def test_an_unknown_unit_refuses_the_metric_by_name() -> None:
    report = read({**AIPERF, "request_latency": stats("fortnights", avg=1)})
    assert report.reason == "record 1, request_latency: the unit 'fortnights' is not known for it"


AIPERF_CSV = """Metric,avg,min,max,sum,p1,p50,p90,p95,p99,std
Input Sequence Length (tokens),"3,761.31",394.00,12554.00,361086.00,394.95,2900.50,7113.00,8710.75,11667.65,2708.35
Inter Chunk Latency (ms),11.99,0.00,218.63,623666.58,3.00,9.08,9.94,10.73,117.99,17.04
Inter Token Latency (ms),11.85,7.49,13.31,1137.34,7.61,12.25,12.80,12.95,13.27,1.25
Output Sequence Length (tokens),543.61,39.00,1526.00,52187.00,42.80,537.50,991.00,1258.50,1472.80,353.28
Time to First Token (ms),230.14,75.04,693.93,22093.17,81.45,177.79,396.73,672.05,687.62,152.24

Metric,Value
Benchmark Duration (sec),44.52
Output Token Throughput (tokens/sec),1172.15
Request Count,96.00
Request Throughput (requests/sec),2.16

Endpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg
"""


def test_the_three_tables_of_aiperfs_csv_are_read_each_by_its_header() -> None:
    report = read(AIPERF_CSV)
    run = only_run(report)
    assert report.kind is Kind.AIPERF_CSV
    assert run.isl_mean_tokens == 3761.31
    assert value(run, Meaning.TPOT, P50) == near(0.01225)
    assert value(run, Meaning.INTER_CHUNK_GAP, P99) == near(0.11799)
    assert value(run, Meaning.OUTPUT_RATE) == 1172.15
    assert (run.completed_count, run.duration_s) == (96, 44.52)
    assert {Ask.MODEL, Ask.CONCURRENCY, Ask.TOOL_VERSION, Ask.STARTED_AT} <= set(report.missing)


def test_genai_perfs_csv_has_crlf_thousands_commas_and_descending_percentiles() -> None:
    text = (
        "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\r\n"
        'Request Latency (ms),"2,200.00","1,320.00","3,960.00","3,520.00",1,1,1,"2,156.00",1\r\n'
        "Inter Token Latency (ms),16.40,9.84,29.52,26.24,21.32,19.68,17.22,16.07,14.76\r\n"
        "\r\nMetric,Value\r\nRequest Throughput (per sec),3.50\r\nOutput Token Throughput (tokens/sec),448.00\r\n"
    )
    report = read(text)
    run = only_run(report)
    assert report.kind is Kind.GENAI_PERF_CSV
    assert value(run, Meaning.E2E_LATENCY, P99) == near(3.52)
    assert value(run, Meaning.TPOT, P99) == near(0.02624)
    assert value(run, Meaning.REQUEST_RATE) == 3.5


def test_genai_perfs_inter_token_latency_is_tpot_and_its_p99_per_user_the_fast_end() -> None:
    report = sample("genai-perf.json")
    run = only_run(report)
    assert value(run, Meaning.TPOT, MEAN) == near(0.0164)
    assert not [metric for metric in run.metrics if metric.meaning is Meaning.INTER_CHUNK_GAP]
    fast, slow = (value(run, Meaning.OUTPUT_RATE_PER_USER, percentile(each)) for each in (99, 1))
    assert fast is not None
    assert slow is not None
    assert fast > slow
    assert value(run, Meaning.TOTAL_RATE) is None
    assert (run.concurrency, run.completed_count) == (8, 140)


def test_a_sweep_of_guidellm_is_a_run_for_each_benchmark() -> None:
    report = sample("guidellm-0.3.1.json")
    assert [run.concurrency for run in report.runs] == [2, 4]
    first = report.runs[0]
    assert first.started_at is not None
    assert first.started_at.timestamp() == near(1796155586.1515565)
    assert (first.completed_count, first.failed_count, first.incomplete_count) == (10, 0, 0)


def test_guidellms_request_latency_is_in_seconds_beside_milliseconds() -> None:
    run = sample("guidellm-0.3.1.json").runs[0]
    assert value(run, Meaning.E2E_LATENCY, MEAN) == near(0.2408306121826172)
    assert value(run, Meaning.TTFT, MEAN) == near(0.06883113384246826)


def test_guidellms_time_per_output_token_is_not_tpot() -> None:
    run = sample("guidellm-0.3.1.json").runs[0]
    tpot, per_token = (value(run, each, MEAN) for each in (Meaning.TPOT, Meaning.LATENCY_PER_OUTPUT_TOKEN))
    assert tpot == near(0.005532864601381364)
    assert per_token == near(0.005532864601381364 * 31 / 32)  # it divides by 32 tokens, not by the 31 gaps


def test_a_mean_weighted_by_tokens_is_kept_apart_from_one_over_requests() -> None:
    old, new = sample("guidellm-0.3.1.json").runs[0], only_run(sample("guidellm-0.8.1.json"))
    assert value(old, Meaning.TPOT_TOKEN_WEIGHTED, MEAN) is None  # its count is 10, the requests
    assert value(new, Meaning.TPOT_TOKEN_WEIGHTED, MEAN) == near(0.00613663504200597)  # its count is 310, the gaps
    assert value(new, Meaning.TPOT, MEAN) is None


def test_what_guidellm_warns_of_is_carried() -> None:
    report = sample("guidellm-0.8.1.json")
    assert any("mean generation delay was 6%" in warning for warning in report.warnings)
    assert only_run(report).tool_version == "0.8.1"
    assert only_run(report).model_name == "acme/tiny-8b-instruct"


def test_guidellms_yaml_gives_the_same_runs_as_its_json() -> None:
    text = yaml.safe_dump(json.loads((SAMPLES / "guidellm-0.8.1.json").read_text()), sort_keys=False)
    report = read(text, "benchmarks.yaml")
    assert report.kind is Kind.GUIDELLM_YAML
    assert only_run(report).metrics == only_run(sample("guidellm-0.8.1.json")).metrics


def test_guidellms_old_csv_lists_percentiles_in_a_cell_without_the_median() -> None:
    columns = ["Type", "Run Id", "Id", "Name", "Start Time", "End Time", "Duration", "Successful Requests"]
    columns += [f"Successful Inter token latency ms {each}" for each in ("mean", "median", "std dev")]
    columns += ["Successful Inter token latency ms [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"]
    columns += ["Successful Output tokens per second mean", "Successful Request latency mean", "Errored Requests"]
    columns += ["Args"]
    args = json.dumps({"strategy": {"type_": "concurrent", "streams": 2}}).replace('"', '""')
    cells = ["generative_benchmark", "r", "i", "n", "2026-12-01 19:53:06", "2026-12-01 19:53:07", "1.25", "10"]
    cells += ["5.53", "5.54", "0.2", '"[4, 4, 4, 5, 5, 5, 6, 7, 8, 9, 10]"', "254.1", "0.24", "0", f'"{args}"']
    run = only_run(read(",".join(f'"{c}"' if "," in c else c for c in columns) + "\r\n" + ",".join(cells) + "\r\n"))
    assert value(run, Meaning.TPOT, P50) == near(0.00554)
    assert value(run, Meaning.TPOT, percentile(90)) == near(0.007)
    assert value(run, Meaning.TPOT, P99) == near(0.009)
    assert value(run, Meaning.E2E_LATENCY, MEAN) == near(0.24)
    assert (run.concurrency, run.completed_count, run.local_started_at) == (2, 10, "2026-12-01T19:53:06")


def test_guidellms_new_csv_has_three_header_rows() -> None:
    head = [
        "Run Info,Benchmark,Timings,Request Counts,Time to First Token,Time to First Token,Server Throughput",
        "Backend,Strategy,Duration,Successful,Successful ms,Successful ms,Successful Requests/Sec",
        ",,Sec,,Mean,Percentiles,Mean",
        '"{""model"": ""acme/tiny""}",concurrent,0.78,10,43.7,"[1, 1, 1, 1, 1, 2, 3, 57, 58, 59, 60]",12.9',
    ]
    report = read("\n".join(head) + "\n")
    run = only_run(report)
    assert report.kind is Kind.GUIDELLM_CSV
    assert run.model_name == "acme/tiny"
    assert (run.scenario, run.concurrency) == (Scenario.CLOSED_LOOP, None)
    assert Ask.CONCURRENCY in report.missing  # a row of a sweep does not say which of its limits it ran at
    assert value(run, Meaning.TTFT, MEAN) == near(0.0437)
    assert value(run, Meaning.TTFT, P99) == near(0.059)
    assert value(run, Meaning.REQUEST_RATE) == 12.9


# Figures of github.com/ray-project/llmperf-leaderboard, raw_data/summary: Lepton, Llama 2 7B, 550 in and 150 out.
LLMPERF = {
    "version": "2023-08-31",
    "model": "llama2-7b",
    "mean_input_tokens": 550,
    "num_concurrent_requests": 5,
    "results_inter_token_latency_s_quantiles_p50": 0.02753337653311292,
    "results_inter_token_latency_s_mean": 0.027627672373711026,
    "results_ttft_s_quantiles_p99": 1.321790463679989,
    "results_ttft_s_mean": 1.1107598410000066,
    "results_number_input_tokens_mean": 550.0,
    "results_number_input_tokens_min": "550",
    "results_number_output_tokens_mean": 150.95,
    "results_number_errors": 130,
    "results_mean_output_throughput_token_per_s": 55.904209686613335,
    "results_num_completed_requests": 20,
    "results_num_completed_requests_per_min": 22.220951183814506,
    "framework": "lepton",
    "timestamp": 1703638574,
}


@pytest.mark.parametrize("prefix", ["results_", ""])
def test_llmperf_counts_requests_per_minute_and_divides_the_whole_latency_by_tokens(prefix: str) -> None:
    report = read({key.replace("results_", prefix): each for key, each in LLMPERF.items()})
    run = only_run(report)
    assert value(run, Meaning.REQUEST_RATE) == near(22.220951183814506 / 60)
    assert value(run, Meaning.LATENCY_PER_OUTPUT_TOKEN, MEAN) == near(0.027627672373711026)
    assert value(run, Meaning.TPOT, MEAN) is None
    assert value(run, Meaning.INTER_CHUNK_GAP, MEAN) is None
    assert value(run, Meaning.TTFT, P99) == near(1.321790463679989)
    assert (run.completed_count, run.failed_count) == (20, 130)
    assert QualityFlag.HAD_FAILURES in run.flags
    assert run.finished_at == datetime.fromtimestamp(1703638574, UTC)
    assert report.missing == (Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.DURATION_S)


def test_trtllm_bench_says_its_hardware_and_its_issue_rate_is_ignored() -> None:
    report = sample("trtllm-bench.json")
    run = only_run(report)
    assert run.request_rate_per_s is None
    assert (run.accelerator_name, run.accelerator_count, run.tp) == ("NVIDIA H200", 8, 8)
    assert (run.engine_version, run.weight_precision, run.kv_precision) == ("1.2.0", "FP8", "FP8")
    assert run.duration_s == near(64.0)
    assert (run.concurrency, run.concurrency_basis) == (812.4, ConcurrencyBasis.MEASURED_MEAN)
    assert value(run, Meaning.OUTPUT_RATE_PER_GPU) == near(8000 / 8)
    assert value(run, Meaning.OUTPUT_RATE_PER_USER, MEAN) == near(9.85)
    assert value(run, Meaning.TOTAL_RATE) == near(24000.0)
    assert value(run, Meaning.TPOT, MEAN) == near(0.084)
    assert report.missing == (Ask.STARTED_AT,)


def test_inferencex_divides_by_gpus_and_its_slow_tail_of_speed_is_the_first_percentile() -> None:
    report = sample("inferencemax.json")
    run = only_run(report)
    assert value(run, Meaning.TOTAL_RATE_PER_GPU) == near(959.5643913511432)
    assert value(run, Meaning.OUTPUT_RATE) == near(319.8547971170477 * 1)
    assert value(run, Meaning.TPOT, P99) == near(0.015890160340322913)
    assert value(run, Meaning.OUTPUT_RATE_PER_USER, percentile(1)) == near(1 / 0.015890160340322913)
    assert value(run, Meaning.OUTPUT_RATE_PER_USER, P99) is None
    assert (run.accelerator_name, run.accelerator_count, run.weight_precision) == ("h200", 1, "fp8")
    assert report.missing == (Ask.ISL_TOKENS, Ask.OSL_TOKENS, Ask.STARTED_AT)


def test_a_disaggregated_aggregate_multiplies_each_share_by_the_gpus_it_was_divided_by() -> None:
    run = only_run(
        read(
            {
                "hw": "gb200",
                "conc": 256,
                "framework": "dynamo-trt",
                "precision": "fp4",
                "model": "m",
                "disagg": True,
                "isl": 1024,
                "osl": 1024,
                "num_prefill_gpu": 4,
                "num_decode_gpu": 8,
                "tput_per_gpu": 100.0,
                "output_tput_per_gpu": 75.0,
                "input_tput_per_gpu": 150.0,
                "median_tpot": 0.02,
            }
        )
    )
    assert value(run, Meaning.OUTPUT_RATE) == 75 * 8
    assert value(run, Meaning.INPUT_RATE) == 150 * 4
    assert value(run, Meaning.TOTAL_RATE) == 100 * 12
    assert (run.accelerator_count, run.prefill_gpu_count, run.decode_gpu_count) == (12, 4, 8)
    assert value(run, Meaning.OUTPUT_RATE_PER_GPU, OVERALL) is None
    assert run.layout is None  # nothing says how many workers the GPUs make up


DISAGGREGATED = {
    "hw": "gb200",
    "conc": 256,
    "framework": "dynamo-trt",
    "precision": "fp4",
    "isl": 1024,
    "osl": 1024,
    "num_prefill_gpu": 8,
    "prefill_num_workers": 2,
    "prefill_tp": 4,
    "prefill_dp_attention": "true",
    "num_decode_gpu": 8,
    "decode_num_workers": 1,
    "decode_tp": 8,
    "decode_dp_attention": "false",
    "median_tpot": 0.02,
}


def test_the_workers_of_a_disaggregated_aggregate_are_its_layout_and_its_engine_the_one_inside() -> None:
    run = only_run(read(DISAGGREGATED))
    assert run.layout == "P2xTP1.DP4/D1xTP8.DP1"
    assert (run.engine, run.extras["framework"]) == ("tensorrt-llm", "dynamo-trt")


def test_workers_that_do_not_make_up_their_gpus_are_no_layout() -> None:
    assert only_run(read(DISAGGREGATED | {"num_decode_gpu": 16})).layout is None
