"""GuideLLM's report of a sweep: one run for each of its benchmarks, as JSON or YAML.

Traps: ``request_latency`` is in seconds beside neighbours in milliseconds. ``inter_token_latency_ms`` is one value a
request up to 0.3 (its count is the requests') and weighted by tokens later (its count is the gaps', issue 1144).
``time_per_output_token_ms`` includes the first token and is not TPOT. Percentiles of rates are of momentary rates.

Schemas: github.com/vllm-project/guidellm, 0.3.1 and 0.8.1.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from service.imports.fields import Fields
from service.imports.measures import MILLISECOND_S, Measures
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import (
    MAX,
    MEAN,
    MIN,
    OVERALL,
    P50,
    STD,
    ConcurrencyBasis,
    ImportedRun,
    Meaning,
    QualityFlag,
    Scenario,
    percentile,
)
from service.imports.vllm import records
from service.imports.yaml_stream import yaml_values

ASKS = (Ask.MODEL, Ask.SCENARIO, Ask.ENGINE, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ENGINE_VERSION)
PERCENTILES = {
    "p001": 0.1,
    "p01": 1,
    "p05": 5,
    "p10": 10,
    "p25": 25,
    "p50": 50,
    "p75": 75,
    "p90": 90,
    "p95": 95,
    "p99": 99,
    "p999": 99.9,
}
STATISTICS = {"mean": MEAN, "median": P50, "std_dev": STD, "min": MIN, "max": MAX}
RATES = {
    "output_tokens_per_second": Meaning.OUTPUT_RATE,
    "tokens_per_second": Meaning.TOTAL_RATE,
    "prompt_tokens_per_second": Meaning.INPUT_RATE,
    "requests_per_second": Meaning.REQUEST_RATE,
    "request_concurrency": Meaning.MEASURED_CONCURRENCY,
    "request_goodput": Meaning.GOODPUT,
}


def successful(metrics: Fields, name: str) -> Fields:
    """The statistics over the requests that succeeded."""
    return metrics.child(name).child("successful")


def take_distribution(
    measures: Measures, metrics: Fields, name: str, meaning: Meaning, *, scale: float = MILLISECOND_S
) -> None:
    summary = successful(metrics, name)
    for word, statistic in STATISTICS.items():
        measures.add(meaning, statistic, summary.raw_number(word), f"{name}.successful.{word}", scale=scale)
    percents = summary.child("percentiles")
    for word, percent in PERCENTILES.items():
        key = f"{name}.successful.percentiles.{word}"
        measures.add(meaning, percentile(percent), percents.raw_number(word), key, scale=scale)


def itl_meaning(metrics: Fields, request_count: int | None) -> Meaning:
    """By what its count counts: requests, or the gaps between their tokens."""
    values = successful(metrics, "inter_token_latency_ms").count("count")
    weighted = values is not None and request_count is not None and values > request_count
    return Meaning.TPOT_TOKEN_WEIGHTED if weighted else Meaning.TPOT


def run_measures(metrics: Fields, request_count: int | None) -> Measures:
    measures = Measures()
    take_distribution(measures, metrics, "time_to_first_token_ms", Meaning.TTFT)
    take_distribution(measures, metrics, "inter_token_latency_ms", itl_meaning(metrics, request_count))
    take_distribution(measures, metrics, "time_per_output_token_ms", Meaning.LATENCY_PER_OUTPUT_TOKEN)
    take_distribution(measures, metrics, "request_latency", Meaning.E2E_LATENCY, scale=1.0)
    for name, meaning in RATES.items():
        value = successful(metrics, name).raw_number("mean")
        measures.add(meaning, OVERALL, value, f"{name}.successful.mean")
    return measures


def strategy_load(strategy: Fields) -> tuple[Scenario | None, int | None, float | None]:
    """Scenario, limit of requests in flight and rate of one of GuideLLM's strategies."""
    limit = strategy.count("streams") or strategy.count("max_concurrency") or None
    rate = strategy.positive("rate")
    match strategy.text("type_") or strategy.text("kind"):
        case "synchronous":
            return Scenario.SINGLE_STREAM, 1, None
        case "concurrent":
            return (Scenario.SINGLE_STREAM if limit == 1 else Scenario.CLOSED_LOOP), limit, None
        case "throughput":
            return Scenario.OFFLINE_MAX, limit, None
        case "constant" | "async" | "poisson":
            return Scenario.OPEN_LOOP, None, rate
        case _:
            return None, limit, rate


def benchmark_run(benchmark: Fields, version: str | None, model: str | None) -> ImportedRun:
    metrics = benchmark.child("metrics")
    totals = metrics.child("request_totals") if "request_totals" in metrics else benchmark.child("request_totals")
    completed, failed, incomplete = (totals.count(word) for word in ("successful", "errored", "incomplete"))
    config = benchmark.child("config") if "config" in benchmark else benchmark.child("args")
    scenario, limit, rate = strategy_load(config.child("strategy"))
    backend = config.child("backend").text("model") or benchmark.child("worker").text("backend_model")
    measures = run_measures(metrics, completed)
    flags = [QualityFlag.HAD_FAILURES] if failed else []
    flags += [QualityFlag.HAD_INCOMPLETE] if incomplete else []
    return ImportedRun(
        tool="guidellm",
        tool_version=version,
        position=benchmark.where,
        model_name=backend or model,
        started_at=benchmark.epoch_time("start_time"),
        finished_at=benchmark.epoch_time("end_time"),
        duration_s=benchmark.seconds("duration"),
        scenario=scenario,
        concurrency=limit,
        concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
        request_rate_per_s=rate,
        isl_mean_tokens=successful(metrics, "prompt_token_count").positive("mean"),
        isl_std_tokens=successful(metrics, "prompt_token_count").number("std_dev"),
        osl_mean_tokens=successful(metrics, "output_token_count").positive("mean"),
        osl_std_tokens=successful(metrics, "output_token_count").number("std_dev"),
        completed_count=completed,
        failed_count=failed,
        incomplete_count=incomplete,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        flags=tuple(flags),
    )


def tool_warnings(benchmark: Fields) -> Iterator[str]:
    """What GuideLLM itself warned of."""
    for warning in benchmark.children("warnings"):
        message = warning.text("message")
        if message:
            yield f"{benchmark.where}: GuideLLM warns: {message}"


def parse_reports(reports: Iterator[Fields]) -> Parsed:
    runs: list[ImportedRun] = []
    warnings: list[str] = []
    for report in reports:
        version = report.child("metadata").text("guidellm_version")
        model = report.child("config").child("spec").child("backend").text("model")
        for benchmark in report.children("benchmarks"):
            runs.append(benchmark_run(benchmark, version, model))
            warnings += tool_warnings(benchmark)
    if not runs:
        raise Refused("the report has no benchmarks")
    if any(run.value(Meaning.TPOT_TOKEN_WEIGHTED, MEAN) for run in runs):
        warnings.append("inter_token_latency_ms is weighted by tokens: kept apart from TPOT, which is one a request")
    warnings.append("time_per_output_token_ms includes the first token and is not TPOT; request_latency is in seconds")
    return Parsed(tuple(runs), ASKS, tuple(warnings))


def parse_json(stream: BinaryIO) -> Parsed:
    return parse_reports(records(stream))


def parse_yaml(stream: BinaryIO) -> Parsed:
    def numbered() -> Iterator[Fields]:
        value: Any
        for count, value in enumerate(yaml_values(stream), start=1):
            yield Fields(value, f"document {count}")

    return parse_reports(numbered())
