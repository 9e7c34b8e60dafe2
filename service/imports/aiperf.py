"""AIPerf and GenAI-Perf summaries as JSON: every metric an object of a unit and statistics.

Their ``inter_token_latency`` is (latency - TTFT) / (output tokens - 1), one value a request: TPOT. AIPerf's
``inter_chunk_latency`` is the pooled gap. The p99 of a throughput per user is the fastest user, not the slow tail.

Schemas: "JSON Export Schema", docs.nvidia.com/aiperf, 0.10 to 0.14; genai-perf/genai_perf/export_data of
github.com/triton-inference-server/perf_analyzer.
"""

from datetime import datetime
from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import Measures
from service.imports.report import Ask, Kind, Parsed, Refused
from service.imports.run import MEAN, OVERALL, STD, ConcurrencyBasis, ImportedRun, Meaning, QualityFlag, Scenario
from service.imports.vllm import records

UNIT_SCALES = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "tokens/sec": 1.0,
    "tokens/sec/user": 1.0,
    "tokens/s": 1.0,
    "requests/sec": 1.0,
    "requests/s": 1.0,
    "requests/min": 1 / 60,
    "tokens": 1.0,
    "requests": 1.0,
    "count": 1.0,
    "": 1.0,
}
DISTRIBUTIONS = {
    "time_to_first_token": Meaning.TTFT,
    "inter_token_latency": Meaning.TPOT,
    "inter_chunk_latency": Meaning.INTER_CHUNK_GAP,
    "request_latency": Meaning.E2E_LATENCY,
    "output_token_throughput_per_user": Meaning.OUTPUT_RATE_PER_USER,
}
RATES = {
    "output_token_throughput": Meaning.OUTPUT_RATE,
    "total_token_throughput": Meaning.TOTAL_RATE,
    "request_throughput": Meaning.REQUEST_RATE,
    "goodput": Meaning.GOODPUT,
    "request_goodput": Meaning.GOODPUT,
    "effective_concurrency": Meaning.MEASURED_CONCURRENCY,
}
HARDWARE_ASKS = (Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION)
AIPERF_CSV_ASKS = (Ask.MODEL, Ask.CONCURRENCY, Ask.TOOL_VERSION, Ask.STARTED_AT, *HARDWARE_ASKS)
AIPERF_ASKS = (Ask.MODEL, Ask.SCENARIO, *HARDWARE_ASKS, Ask.ENGINE)
GENAI_PERF_ASKS = (Ask.MODEL, Ask.CONCURRENCY, *HARDWARE_ASKS, Ask.ENGINE_VERSION, Ask.STARTED_AT, Ask.FAILED_COUNT)
TPOT_NOTE = "inter_token_latency is one value a request: TPOT"


def scale_of(fields: Fields, metric: str) -> float:
    """To base units, by the unit that stands beside the figures."""
    unit = (fields.child(metric).text("unit") or "").lower()
    if unit not in UNIT_SCALES:
        raise Refused(f"the unit {unit!r} is not known for it", where=fields.place(metric))
    return UNIT_SCALES[unit]


def summary_measures(fields: Fields) -> Measures:
    measures = Measures()
    for key, meaning in DISTRIBUTIONS.items():
        if isinstance(fields.values.get(key), dict):
            measures.take_all(fields.child(key), key, meaning, scale=scale_of(fields, key))
    for key, meaning in RATES.items():
        if isinstance(fields.values.get(key), dict):
            value = fields.child(key).raw_number("avg")
            measures.add(meaning, OVERALL, value, key, scale=scale_of(fields, key))
    return measures


def average(fields: Fields, metric: str, statistic: str = "avg") -> float | None:
    value = fields.values.get(metric)
    return Fields(value, fields.place(metric)).number(statistic) if isinstance(value, dict) else None


def duration_of(fields: Fields) -> float | None:
    value = fields.values.get("benchmark_duration")
    scale = scale_of(fields, "benchmark_duration") if isinstance(value, dict) else 1.0
    return Fields(value, fields.place("benchmark_duration")).seconds("avg", scale=scale) if value else None


def whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def time_of(fields: Fields, key: str) -> tuple[datetime | None, str | None]:
    """With a zone as a time; without one as the reading of an unknown clock."""
    time = fields.iso_time(key)
    if time is None:
        return None, None
    return (time, None) if time.tzinfo else (None, fields.text(key))


def measured_phase(fields: Fields) -> Fields:
    """The phase whose requests are in the results; a warm-up says so with ``exclude_from_results``."""
    config = fields.child("input_config")
    phases = [each for each in config.children("phases") if not each.truth("exclude_from_results")]
    return phases[-1] if phases else config.child("loadgen")


def scenario_of(concurrency: int | None, rate: float | None) -> Scenario | None:
    if rate:
        return Scenario.OPEN_LOOP
    if concurrency:
        return Scenario.SINGLE_STREAM if concurrency == 1 else Scenario.CLOSED_LOOP
    return None


def telemetry_gpus(fields: Fields) -> list[str]:
    """Names of the GPUs in AIPerf's telemetry, which may list an endpoint without any."""
    endpoints = fields.child("telemetry_data").child("endpoints")
    gpus = [endpoints.child(url, "gpus") for url in endpoints]
    names = [group.child(gpu).text("gpu_name") for group in gpus for gpu in group]
    return [name for name in names if name]


def model_of(fields: Fields) -> str | None:
    config = fields.child("input_config")
    items = config.child("models").children("items") if isinstance(config.values.get("models"), dict) else []
    names = [name for item in items if (name := item.text("name"))]
    listed = config.array("model_names") or config.child("endpoint").array("model_names")
    names += [str(name) for name in listed.items] if listed else []
    return names[0][:500] if names else None


def aiperf_run(fields: Fields) -> ImportedRun:
    measures, phase, gpus = summary_measures(fields), measured_phase(fields), telemetry_gpus(fields)
    limit = phase.count("concurrency") or None
    rate = phase.positive("request_rate") or phase.positive("rate")
    started, local_started = time_of(fields, "start_time")
    finished, local_finished = time_of(fields, "end_time")
    errors = average(fields, "error_request_count")
    listed = fields.array("error_summary")
    failed = whole(errors) if errors is not None else (0 if listed is not None and listed.count == 0 else None)
    incomplete = fields.truth("is_complete") is False
    flags = [QualityFlag.CANCELLED] if fields.truth("was_cancelled") else []
    flags += [QualityFlag.HAD_FAILURES] if failed else []
    flags += [QualityFlag.HAD_INCOMPLETE] if incomplete else []
    flags += [QualityFlag.CAPPED_OPEN_LOOP] if rate and limit else []
    usage = [key for key in fields if key.startswith("usage_") and average(fields, key)]
    return ImportedRun(
        tool="aiperf",
        tool_version=fields.text("aiperf_version"),
        position=fields.where,
        model_name=model_of(fields),
        started_at=started,
        finished_at=finished,
        local_started_at=local_started,
        local_finished_at=local_finished,
        duration_s=duration_of(fields),
        scenario=scenario_of(limit, rate),
        concurrency=limit,
        concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
        request_rate_per_s=rate,
        isl_mean_tokens=average(fields, "input_sequence_length"),
        isl_std_tokens=average(fields, "input_sequence_length", "std"),
        osl_mean_tokens=average(fields, "output_sequence_length"),
        osl_std_tokens=average(fields, "output_sequence_length", "std"),
        completed_count=whole(average(fields, "request_count")),
        failed_count=failed,
        accelerator_name=gpus[0] if gpus and len(set(gpus)) == 1 else None,
        accelerator_count=len(gpus) or None,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        flags=tuple(flags),
        extras={key: f"{average(fields, key):g}" for key in usage},
    )


def parse_aiperf(stream: BinaryIO) -> Parsed:
    runs = tuple(aiperf_run(fields) for fields in records(stream))
    warnings = [f"{TPOT_NOTE}; inter_chunk_latency is the pooled gap"]
    if any(run.local_started_at for run in runs):
        warnings.append("start_time names no zone")
    if any(run.accelerator_name is None for run in runs):
        warnings.append("the telemetry names no GPU")
    return Parsed(runs, AIPERF_ASKS, tuple(warnings))


def genai_perf_run(fields: Fields) -> ImportedRun:
    measures = summary_measures(fields)
    stimulus = fields.child("input_config").child("perf_analyzer").child("stimulus")
    limit, rate = stimulus.count("concurrency") or None, stimulus.positive("request_rate")
    return ImportedRun(
        tool="genai-perf",
        position=fields.where,
        model_name=model_of(fields),
        scenario=scenario_of(limit, rate),
        concurrency=limit,
        concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
        request_rate_per_s=rate,
        isl_mean_tokens=average(fields, "input_sequence_length"),
        isl_std_tokens=average(fields, "input_sequence_length", "std"),
        osl_mean_tokens=average(fields, "output_sequence_length"),
        osl_std_tokens=average(fields, "output_sequence_length", "std"),
        completed_count=whole(average(fields, "request_count")),
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
    )


def parse_genai_perf(stream: BinaryIO) -> Parsed:
    runs = tuple(genai_perf_run(fields) for fields in records(stream))
    warnings = (
        f"{TPOT_NOTE}, as (latency - TTFT) / (output tokens - 1)",
        "the p99 of output_token_throughput_per_user is the fastest user, not the slow tail",
        "a file has no time, no version and no count of failures",
    )
    return Parsed(runs, GENAI_PERF_ASKS, warnings)


def csv_metric_run(kind: Kind, measures: Measures, lengths: dict[str, float], scalars: dict[str, float]) -> ImportedRun:
    """The run of a CSV, whose file says nothing but figures."""
    return ImportedRun(
        tool="aiperf" if kind is Kind.AIPERF_CSV else "genai-perf",
        duration_s=scalars.get("benchmark duration"),
        isl_mean_tokens=lengths.get(f"input sequence length {MEAN}"),
        isl_std_tokens=lengths.get(f"input sequence length {STD}"),
        osl_mean_tokens=lengths.get(f"output sequence length {MEAN}"),
        osl_std_tokens=lengths.get(f"output sequence length {STD}"),
        completed_count=whole(scalars.get("request count")),
        failed_count=whole(scalars.get("error request count")),
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
    )
