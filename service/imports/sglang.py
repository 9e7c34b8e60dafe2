"""SGLang: ``bench_serving`` and ``bench_one_batch``, which append one JSON object a run to a file.

Schemas: python/sglang/bench_serving.py and bench_one_batch.py of github.com/sgl-project/sglang at 0.4.6 and 0.5.5.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import MILLISECOND_S, Measures, statistic_named
from service.imports.report import Ask, Kind, Parsed
from service.imports.run import OVERALL, P50, ConcurrencyBasis, ImportedRun, Meaning, QualityFlag, Scenario
from service.imports.vllm import ENGINES, offered_load, per_request, records

LATENCIES = {
    "ttft_ms": Meaning.TTFT,
    "tpot_ms": Meaning.TPOT,
    "itl_ms": Meaning.INTER_CHUNK_GAP,
    "e2e_latency_ms": Meaning.E2E_LATENCY,
}
HARDWARE_ASKS = (Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION)
SERVING_ASKS = (Ask.MODEL, Ask.ENGINE, Ask.STARTED_AT, Ask.FAILED_COUNT, *HARDWARE_ASKS, Ask.ENGINE_VERSION)
ONE_BATCH_ASKS = (Ask.MODEL, Ask.STARTED_AT, *HARDWARE_ASKS, Ask.ENGINE_VERSION)
COUNTS_AGREE_WITHIN = 0.25


def serving_measures(fields: Fields) -> Measures:
    measures = Measures()
    for key in fields:
        word, _, rest = key.partition("_")
        statistic = statistic_named(word)
        if rest in LATENCIES and statistic:
            measures.take(fields, key, LATENCIES[rest], statistic, scale=MILLISECOND_S)
    measures.take(fields, "output_throughput", Meaning.OUTPUT_RATE)
    measures.take(fields, "input_throughput", Meaning.INPUT_RATE)
    measures.take(fields, "total_throughput", Meaning.TOTAL_RATE)
    read = fields.number("input_throughput"), fields.number("output_throughput")
    if read[0] and read[1]:
        measures.add(Meaning.TOTAL_RATE, OVERALL, read[0] + read[1], "input_throughput + output_throughput")
    measures.take(fields, "request_throughput", Meaning.REQUEST_RATE)
    measures.take(fields, "concurrency", Meaning.MEASURED_CONCURRENCY)
    measures.take(fields, "accept_length", Meaning.TOKENS_PER_SPECULATIVE_STEP)
    return measures


def counts_disagree(fields: Fields) -> bool:
    """Whether the server's count and the client's own are far apart (sglang issue 7084: 10 against 1,000)."""
    served, counted = fields.number("total_output_tokens"), fields.number("total_output_tokens_retokenized")
    return bool(served and counted and abs(served - counted) > COUNTS_AGREE_WITHIN * max(served, counted))


def serving_run(fields: Fields) -> ImportedRun:
    completed = fields.count("completed")
    load, measures, server = offered_load(fields), serving_measures(fields), fields.child("server_info")
    flags = list(load.flags)
    flags += [QualityFlag.TOKEN_COUNTS_DISAGREE] if counts_disagree(fields) else []
    backend = fields.text("backend") or ""
    engine = backend.split("-")[0] if backend.startswith(("sglang", "vllm")) else backend
    lengths = {key: array.std for key in ("input_lens", "output_lens") if (array := fields.array(key))}
    return ImportedRun(
        tool=Kind.SGLANG_SERVING.value,
        position=fields.where,
        engine=engine if engine in ENGINES else None,
        engine_version=server.text("version"),
        client_backend=backend or None,
        model_name=server.text("model_path") or fields.text("model_id"),
        weight_precision=server.text("quantization"),
        duration_s=fields.seconds("duration"),
        scenario=load.scenario,
        concurrency=load.concurrency,
        concurrency_basis=ConcurrencyBasis.LIMIT if load.concurrency else None,
        request_rate_per_s=load.request_rate_per_s,
        isl_mean_tokens=per_request(fields.number("total_input_tokens"), completed),
        isl_std_tokens=lengths.get("input_lens"),
        osl_mean_tokens=per_request(fields.number("total_output_tokens"), completed),
        osl_std_tokens=lengths.get("output_lens"),
        completed_count=completed,
        tp=server.count("tp_size") or None,
        pp=server.count("pp_size") or None,
        ep=server.count("ep_size") or None,
        dp=server.count("dp_size") or None,
        speculative_decoding=server.text("speculative_algorithm"),
        extras={key: text for key in ("total_output_tokens_retokenized", "tag") if (text := fields.text(key))},
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        flags=tuple(flags),
    )


def parse_serving(stream: BinaryIO) -> Parsed:
    runs, warnings, suggested = [], [], {}
    for fields in records(stream):
        run = serving_run(fields)
        runs.append(run)
        if QualityFlag.TOKEN_COUNTS_DISAGREE in run.flags:
            warnings.append(
                f"{fields.where}: the server counted {fields.text('total_output_tokens')} output tokens, the client's "
                f"tokenizer {fields.text('total_output_tokens_retokenized')}: rates rest on the server's count"
            )
        if run.tp:
            suggested["gpu_count"] = run.tp * (run.pp or 1)
    return Parsed(tuple(runs), SERVING_ASKS, (*warnings, *_on_concurrency(runs)), suggested)


def _on_concurrency(runs: Sequence[ImportedRun]) -> Iterator[str]:
    """The tool calls ``concurrency`` what was in flight on average, and not the load that it offered."""
    limited = {run.concurrency is not None for run in runs if run.value(Meaning.MEASURED_CONCURRENCY, OVERALL)}
    if True in limited:
        yield (
            "a run's concurrency is the file's max_concurrency, the limit; the file's concurrency, the mean in flight, "
            "is kept as the metric measured_concurrency"
        )
    if False in limited:
        yield (
            "without max_concurrency nothing limits the requests in flight, and a run has no concurrency of its own; "
            "the file's concurrency, the mean in flight, is kept as the metric measured_concurrency"
        )


def parse_one_batch(stream: BinaryIO) -> Parsed:
    """Seconds; ``overall_throughput`` counts prompt and output, the decode rate is the batch over its median step."""
    runs = []
    for fields in records(stream):
        measures = Measures()
        measures.take(fields, "median_decode_latency", Meaning.DECODE_STEP, P50)
        measures.take(fields, "prefill_latency", Meaning.PREFILL_TIME)
        measures.take(fields, "prefill_throughput", Meaning.PREFILL_RATE)
        measures.take(fields, "median_decode_throughput", Meaning.DECODE_RATE)
        measures.take(fields, "overall_throughput", Meaning.TOTAL_RATE)
        runs.append(
            ImportedRun(
                tool=Kind.SGLANG_ONE_BATCH.value,
                position=fields.where,
                engine="sglang",
                duration_s=fields.seconds("total_latency"),
                scenario=Scenario.STATIC_BATCH,
                concurrency=fields.count("batch_size"),
                concurrency_basis=ConcurrencyBasis.BATCH,
                isl_mean_tokens=fields.positive("input_len"),
                osl_mean_tokens=fields.positive("output_len"),
                metrics=measures.metrics,
                dropped_keys=tuple(measures.not_finite),
            )
        )
    warnings = (
        "times are in seconds; overall_throughput counts prompt and output",
        "the decode rate is the batch over the median step, not over the whole time",
    )
    return Parsed(tuple(runs), ONE_BATCH_ASKS, warnings)
