"""vLLM: ``bench serve`` with the older ``benchmark_serving.py``, ``bench latency`` and ``bench throughput``.

Schemas: vllm/benchmarks/serve.py, latency.py and throughput.py, and benchmarks/benchmark_serving.py, of
github.com/vllm-project/vllm at 0.8 to 0.33.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import inf, isinf
from typing import BinaryIO

from service.imports.fields import Fields, time_in
from service.imports.json_stream import json_values
from service.imports.measures import MILLISECOND_S, Measures, statistic_named
from service.imports.report import Ask, Kind, Parsed, Refused
from service.imports.run import MEAN, ConcurrencyBasis, ImportedRun, Meaning, QualityFlag, Scenario, percentile

MOST_RUNS = 10_000
MOST_EXTRAS = 50
LATENCIES = {
    "ttft": Meaning.TTFT,
    "tpot": Meaning.TPOT,
    "itl": Meaning.INTER_CHUNK_GAP,
    "e2el": Meaning.E2E_LATENCY,
}
WHOLE_NUMBER = re.compile(r"[1-9]\d{0,3}", re.ASCII)
PERCENT = re.compile(r"\d{1,2}|100", re.ASCII)
LATENCY_KEY = re.compile(r"([a-z]+|p\d{1,2}(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms", re.ASCII)
SERVE_ASKS = (Ask.MODEL, Ask.ENGINE, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ENGINE_VERSION)
OFFLINE_ASKS = (Ask.MODEL, Ask.ISL_TOKENS, Ask.OSL_TOKENS, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION)
ENGINES = frozenset({"vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy", "deepspeed-mii", "scalellm", "llama.cpp"})
OWN_KEYS = frozenset(
    [
        "date",
        "endpoint_type",
        "backend",
        "label",
        "model_id",
        "tokenizer_id",
        "num_prompts",
        "request_rate",
        "burstiness",
        "max_concurrency",
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "request_goodput:",
        "output_throughput",
        "total_token_throughput",
        "max_output_tokens_per_s",
        "max_concurrent_requests",
        "rtfx",
        "best_of",
        "ramp_up_strategy",
        "ramp_up_start_rps",
        "ramp_up_end_rps",
        "goodput",
    ]
)


def records(stream: BinaryIO) -> Iterator[Fields]:
    """The objects of a file of one or of many, each with its number."""
    count = 0
    for count, value in enumerate(json_values(stream), start=1):
        if count > MOST_RUNS:
            raise Refused(f"there are more than {MOST_RUNS} records; send the file in parts")
        yield Fields(value, f"record {count}")


@dataclass(frozen=True, slots=True)
class Load:
    """How requests were offered."""

    scenario: Scenario | None
    concurrency: int | None
    request_rate_per_s: float | None
    flags: tuple[QualityFlag, ...] = ()


def offered_load(fields: Fields) -> Load:
    """From a limit of requests in flight and an arrival rate; no limit and no rate is everything at once."""
    limit = fields.count("max_concurrency")
    stated = fields.values.get("request_rate")
    if stated == "trace":
        return Load(Scenario.OPEN_LOOP, limit, None)
    rate = fields.raw_number("request_rate")
    if rate is not None and not rate > 0:
        raise fields.refuse("request_rate", "a rate above zero")
    if rate is None:
        return Load(Scenario.CLOSED_LOOP if limit else None, limit, None)
    if not isinf(rate):
        return Load(Scenario.OPEN_LOOP, limit, rate, (QualityFlag.CAPPED_OPEN_LOOP,) if limit else ())
    if limit == 1:
        return Load(Scenario.SINGLE_STREAM, 1, inf)
    return Load(Scenario.CLOSED_LOOP if limit else Scenario.OFFLINE_MAX, limit, inf)


def per_request(total: float | None, count: int | None) -> float | None:
    return total / count if total and count else None


def serving_measures(fields: Fields) -> Measures:
    measures = Measures()
    for key in fields:
        match = LATENCY_KEY.fullmatch(key)
        statistic = statistic_named(match.group(1)) if match else None
        if match and statistic:
            measures.take(fields, key, LATENCIES[match.group(2)], statistic, scale=MILLISECOND_S)
    measures.take(fields, "output_throughput", Meaning.OUTPUT_RATE)
    measures.take(fields, "total_token_throughput", Meaning.TOTAL_RATE)
    measures.take(fields, "request_throughput", Meaning.REQUEST_RATE)
    measures.take(fields, "max_output_tokens_per_s", Meaning.PEAK_OUTPUT_RATE)
    measures.take(fields, "request_goodput", Meaning.GOODPUT)
    measures.take(fields, "request_goodput:", Meaning.GOODPUT)
    return measures


def serve_run(fields: Fields) -> ImportedRun:
    completed = fields.count("completed")
    failed = fields.count("failed")
    prompts = fields.count("num_prompts")
    if failed is None and prompts is not None and completed is not None and prompts >= completed:
        failed = prompts - completed
    load, measures = offered_load(fields), serving_measures(fields)
    duration_s = fields.seconds("duration")
    finished = time_in(fields.text("date") or "", "%Y%m%d-%H%M%S")
    started = finished - timedelta(seconds=duration_s) if finished and duration_s else None
    backend = fields.text("backend")
    flags = list(load.flags)
    flags += [QualityFlag.HAD_FAILURES] if failed else []
    extra_keys = [key for key in fields if _is_extra(fields, key)][:MOST_EXTRAS]
    lengths = {key: array.std for key in ("input_lens", "output_lens") if (array := fields.array(key))}
    return ImportedRun(
        tool=Kind.VLLM_SERVE.value,
        position=fields.where,
        engine=backend if backend in ENGINES else None,
        client_backend=backend or fields.text("endpoint_type"),
        model_name=fields.text("model_id"),
        local_started_at=started.isoformat() if started else None,
        local_finished_at=finished.isoformat() if finished else None,
        duration_s=duration_s,
        scenario=load.scenario,
        concurrency=load.concurrency,
        concurrency_basis=ConcurrencyBasis.LIMIT if load.concurrency else None,
        request_rate_per_s=load.request_rate_per_s,
        isl_mean_tokens=per_request(fields.number("total_input_tokens"), completed),
        isl_std_tokens=lengths.get("input_lens"),
        osl_mean_tokens=per_request(fields.number("total_output_tokens"), completed),
        osl_std_tokens=lengths.get("output_lens"),
        completed_count=completed,
        failed_count=failed,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        flags=tuple(flags),
        extras={key: fields.values[key][:200] for key in extra_keys},
    )


def _is_extra(fields: Fields, key: str) -> bool:
    """Keys that the user added with ``--metadata``."""
    own = key in OWN_KEYS or LATENCY_KEY.fullmatch(key) or key.startswith(("spec_decode_", "probe_", "ramp_up_"))
    return not own and isinstance(fields.values[key], str) and len(key) <= 100


def parse_serve(stream: BinaryIO) -> Parsed:
    runs, warnings, suggested = [], [], {}
    for fields in records(stream):
        run = serve_run(fields)
        runs.append(run)
        peak = fields.count("max_concurrent_requests")
        if peak and run.concurrency and peak > run.concurrency:
            warnings.append(
                f"{fields.where}: max_concurrent_requests ({peak}) counts requests that touch a second, and is more "
                f"than the limit max_concurrency ({run.concurrency:g}): the limit is taken"
            )
        if "failed" not in fields and run.failed_count is not None:
            warnings.append(f"{fields.where}: the version writes no failed; it is num_prompts less completed")
        if run.client_backend and run.engine is None:
            warnings.append(f"{fields.where}: {run.client_backend!r} is the style of the API, not an engine")
        stated_tp = run.extras.get("tensor_parallel_size") or run.extras.get("tp")
        if stated_tp and WHOLE_NUMBER.fullmatch(stated_tp):
            suggested["gpu_count"] = int(stated_tp)
    if any(run.local_finished_at for run in runs):
        warnings.append("date is the client's clock at the end of the run, in no zone")
    return Parsed(tuple(runs), SERVE_ASKS, tuple(warnings), suggested)


def parse_latency(stream: BinaryIO) -> Parsed:
    """One latency is one whole batch, in seconds; every request of a static batch ends with it."""
    runs = []
    for fields in records(stream):
        measures = Measures()
        measures.take(fields, "avg_latency", Meaning.E2E_LATENCY, MEAN)
        for percent in (percents := fields.child("percentiles")):
            if PERCENT.fullmatch(percent):
                key = f"percentiles.{percent}"
                measures.add(Meaning.E2E_LATENCY, percentile(int(percent)), percents.raw_number(percent), key)
        runs.append(
            ImportedRun(
                tool=Kind.VLLM_LATENCY.value,
                position=fields.where,
                model_name=fields.text("model_id"),
                scenario=Scenario.STATIC_BATCH,
                concurrency_basis=ConcurrencyBasis.BATCH,
                metrics=measures.metrics,
                dropped_keys=tuple(measures.not_finite),
            )
        )
    warnings = ("latencies are in seconds, one for a whole batch: rates need `batch` and `osl_tokens` from the caller",)
    return Parsed(tuple(runs), (*OFFLINE_ASKS, Ask.BATCH, Ask.ENGINE_VERSION), warnings)


def parse_throughput(stream: BinaryIO) -> Parsed:
    runs = []
    for fields in records(stream):
        measures = Measures()
        measures.take(fields, "tokens_per_second", Meaning.TOTAL_RATE)
        measures.take(fields, "requests_per_second", Meaning.REQUEST_RATE)
        runs.append(
            ImportedRun(
                tool=Kind.VLLM_THROUGHPUT.value,
                position=fields.where,
                model_name=fields.text("model_id"),
                duration_s=fields.seconds("elapsed_time"),
                scenario=Scenario.OFFLINE_MAX,
                completed_count=fields.count("num_requests"),
                metrics=measures.metrics,
                dropped_keys=tuple(measures.not_finite),
            )
        )
    warnings = ("tokens_per_second counts prompt and output together; it is not the output rate",)
    asks = (*OFFLINE_ASKS, Ask.OUTPUT_TOKENS_PER_S, Ask.ENGINE_VERSION)
    return Parsed(tuple(runs), asks, warnings)
