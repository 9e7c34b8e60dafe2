"""LLMPerf's summary: flat JSON, in seconds, with requests per minute.

``inter_token_latency_s`` is the whole latency over the output tokens, first token included: neither TPOT nor a gap.
``version`` is the date of the schema. Older files put ``results_`` before each figure. Public files:
github.com/ray-project/llmperf-leaderboard, raw_data/summary.
"""

from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import Measures, statistic_named
from service.imports.report import Ask, Parsed
from service.imports.run import MEAN, ConcurrencyBasis, ImportedRun, Meaning, QualityFlag, Scenario
from service.imports.vllm import records

ASKS = (Ask.MODEL, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.DURATION_S)
DISTRIBUTIONS = {
    "ttft_s": Meaning.TTFT,
    "end_to_end_latency_s": Meaning.E2E_LATENCY,
    "inter_token_latency_s": Meaning.LATENCY_PER_OUTPUT_TOKEN,
    "request_output_throughput_token_per_s": Meaning.OUTPUT_RATE_PER_USER,
}
MINUTE_S = 60
WARNINGS = (
    "latencies are in seconds, num_completed_requests_per_min is per minute",
    "inter_token_latency_s is the whole latency over the output tokens: kept apart from TPOT and ITL",
    "version is the date of the results' schema, not of the tool",
)


def bare(fields: Fields) -> Fields:
    """The same record without the prefix of older files."""
    return Fields({key.removeprefix("results_"): value for key, value in fields.values.items()}, fields.where)


def summary_measures(fields: Fields) -> Measures:
    measures = Measures()
    for name, meaning in DISTRIBUTIONS.items():
        for key in fields:
            if key.startswith(f"{name}_"):
                word = key.removeprefix(f"{name}_").removeprefix("quantiles_")
                statistic = statistic_named(word)
                if statistic:
                    measures.take(fields, key, meaning, statistic)
    measures.take(fields, "mean_output_throughput_token_per_s", Meaning.OUTPUT_RATE)
    measures.take(fields, "num_completed_requests_per_min", Meaning.REQUEST_RATE, scale=1 / MINUTE_S)
    return measures


def summary_run(original: Fields) -> ImportedRun:
    fields = bare(original)
    measures, limit = summary_measures(fields), fields.count("num_concurrent_requests")
    errors = fields.count("number_errors")
    flags = [QualityFlag.HAD_FAILURES] if errors else []
    scenario = Scenario.SINGLE_STREAM if limit == 1 else Scenario.CLOSED_LOOP
    return ImportedRun(
        tool="llmperf",
        tool_version=fields.text("version"),
        position=original.where,
        engine=fields.text("framework"),
        model_name=fields.text("model"),
        finished_at=fields.epoch_time("timestamp"),
        scenario=scenario if limit else None,
        concurrency=limit or None,
        concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
        isl_mean_tokens=fields.positive(f"number_input_tokens_{MEAN}"),
        isl_std_tokens=fields.number("number_input_tokens_stddev"),
        osl_mean_tokens=fields.positive(f"number_output_tokens_{MEAN}"),
        osl_std_tokens=fields.number("number_output_tokens_stddev"),
        completed_count=fields.count("num_completed_requests"),
        failed_count=errors,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        flags=tuple(flags),
        extras={"api": api} if (api := fields.text("api")) else {},
    )


def parse(stream: BinaryIO) -> Parsed:
    return Parsed(tuple(summary_run(fields) for fields in records(stream)), ASKS, WARNINGS)
