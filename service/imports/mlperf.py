"""MLPerf LoadGen's logs, with the ``system.json`` of the submission beside them.

Latencies are in nanoseconds. An Interactive run says "Scenario : Server": only its directory or its limits tell. The
latencies of an Offline run are the time in the queue of all samples at once, and are left out. An INVALID run is kept
and says so. The model is a directory's name. Sources: github.com/mlcommons/inference, loadgen/results.cc and
tools/submission; latency limits of the Interactive scenario: MLPerf inference rules 5.1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import BinaryIO

from service.imports.fields import Fields, number_in, time_in
from service.imports.json_stream import json_values
from service.imports.measures import NANOSECOND_S, Measures, statistic_named
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import ConcurrencyBasis, ImportedRun, Meaning, Mlperf, QualityFlag, Scenario, percentile
from service.imports.text_stream import lines

ASKS = (Ask.MODEL, Ask.ISL_TOKENS, Ask.PRECISION, Ask.ACCELERATOR, Ask.GPU_COUNT)
SCENARIOS = {
    "Offline": Scenario.MLPERF_OFFLINE,
    "Server": Scenario.MLPERF_SERVER,
    "Interactive": Scenario.MLPERF_INTERACTIVE,
    "SingleStream": Scenario.MLPERF_SINGLE_STREAM,
    "MultiStream": Scenario.MLPERF_MULTI_STREAM,
}
INTERACTIVE_LIMITS_S = ((0.45, 0.04), (4.5, 0.08), (0.5, 0.03))
LATENCY_LINE = re.compile(
    r"(Min|Max|Mean|\d{1,2}(?:\.\d+)? percentile) "
    r"(latency|First Token latency|Time to Output Token) \(ns\)",
    re.IGNORECASE | re.ASCII,
)
LATENCIES = {
    "latency": Meaning.E2E_LATENCY,
    "first token latency": Meaning.TTFT,
    "time to output token": Meaning.TPOT,
}
RATE_LINES = {
    "Completed samples per second": Meaning.REQUEST_RATE,
    "Samples per second": Meaning.REQUEST_RATE,
    "QPS w/ loadgen overhead": Meaning.REQUEST_RATE,
    "Completed tokens per second": Meaning.OUTPUT_RATE,
    "Tokens per second": Meaning.OUTPUT_RATE,
    "TPS w/ loadgen overhead": Meaning.OUTPUT_RATE,
}
DETAIL_KEYS = frozenset(
    {
        "loadgen_version",
        "test_datetime",
        "effective_samples_per_query",
        "generated_samples_per_query",
        "result_query_count",
    }
)
MOST_LINES = 5_000_000
MOST_SUMMARY_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Detail:
    """What the detail log adds to the summary."""

    loadgen_version: str | None
    started_at: datetime | None
    completed_count: int | None
    generated_count: int | None


@dataclass(frozen=True, slots=True)
class System:
    """What system.json adds."""

    accelerator_name: str | None
    accelerator_count: int | None
    node_count: int | None
    framework: str | None
    submitter: str | None
    division: str | None
    availability: str | None
    system_name: str | None


def summary_lines(stream: BinaryIO) -> dict[str, str]:
    """The "name : value" lines; LoadGen pads them or not, and writes some twice in both spellings."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines(stream), start=1):
        if number > MOST_SUMMARY_LINES:
            raise Refused(f"there are more than {MOST_SUMMARY_LINES} lines; a summary has about a hundred")
        name, colon, value = line.rpartition(":")
        if colon and len(name) < 200:
            found.setdefault(" ".join(name.split()), value.strip())
    return found


def log_measures(found: Mapping[str, str], *, offline: bool) -> Measures:
    measures = Measures()
    for name, text in found.items():
        match = LATENCY_LINE.fullmatch(name)
        if match is None or offline:
            continue
        word = match.group(1).lower()
        statistic = percentile(float(word.split()[0])) if word.endswith("percentile") else statistic_named(word)
        if statistic is not None:
            measures.add(LATENCIES[match.group(2).lower()], statistic, number_in(text), name, scale=NANOSECOND_S)
    for name, meaning in RATE_LINES.items():
        if name in found:
            measures.take(Fields(found, ""), name, meaning)
    return measures


def scenario_of(logged: str, name: str, limits: tuple[float | None, float | None]) -> Scenario:
    """The scenario that the log names, and of a Server run whether directory or limits make it Interactive."""
    parts = [part.lower() for part in name.split("/")[:-1]]
    named = any(part.startswith("interactive") for part in parts)
    if logged == "Server" and (named or limits in INTERACTIVE_LIMITS_S):
        return Scenario.MLPERF_INTERACTIVE
    return SCENARIOS[logged]


def model_directory(name: str) -> str | None:
    """The directory above the scenario's, which a submission names after the model; only in a submission's tree.

    >>> model_directory("closed/AMD/results/8xMI300X/llama2-70b-99/Server/performance/run_1/mlperf_log_summary.txt")
    'llama2-70b-99'
    """
    parts = name.split("/")
    known = {scenario.lower() for scenario in SCENARIOS}
    scenario = next((i for i in range(1, len(parts) - 1) if parts[i].lower() in known), None)
    in_submission = scenario is not None and ("results" in parts[:scenario] or parts[scenario + 1] == "performance")
    return parts[scenario - 1] if scenario is not None and in_submission else None


def nanoseconds(found: Mapping[str, str], name: str) -> float | None:
    value = Fields(found, "").positive(name) if name in found else None
    return value * NANOSECOND_S if value else None


def summary_run(found: Mapping[str, str], name: str) -> ImportedRun:
    logged, result = found.get("Scenario"), found.get("Result is")
    if logged not in SCENARIOS:
        raise Refused(f"the scenario {str(logged)[:40]!r} is not one of {', '.join(SCENARIOS)}", where="Scenario")
    limits = nanoseconds(found, "ttft_latency (ns)"), nanoseconds(found, "tpot_latency (ns)")
    measures = log_measures(found, offline=logged == "Offline")
    rates = [metric.value for metric in measures.metrics if metric.meaning is Meaning.OUTPUT_RATE]
    requests = [metric.value for metric in measures.metrics if metric.meaning is Meaning.REQUEST_RATE]
    served = logged == "Server"
    flags = [] if result == "VALID" else [QualityFlag.INVALID]
    flags += [] if found.get("Mode") == "PerformanceOnly" else [QualityFlag.NOT_PERFORMANCE_MODE]
    return ImportedRun(
        tool="mlperf-loadgen",
        model_name=model_directory(name),
        scenario=scenario_of(logged, name, limits),
        concurrency=1 if logged == "SingleStream" else None,
        concurrency_basis=ConcurrencyBasis.LIMIT if logged == "SingleStream" else None,
        request_rate_per_s=Fields(found, "").positive("target_qps") if served else None,
        osl_mean_tokens=rates[0] / requests[0] if rates and requests else None,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        mlperf=Mlperf(
            scenario_as_logged=logged,
            valid=result == "VALID" if result else None,
            mode=found.get("Mode"),
            ttft_limit_s=limits[0] if served else None,
            tpot_limit_s=limits[1] if served else None,
        ),
        flags=tuple(flags),
    )


def parse_summary(stream: BinaryIO, name: str) -> Parsed:
    found = summary_lines(stream)
    if "Result is" not in found:
        raise Refused("there is no line 'Result is': the log was cut off or the test did not end")
    run = summary_run(found, name)
    warnings = ["times are in nanoseconds; the mean output length is tokens/s over samples/s"]
    if run.scenario is Scenario.MLPERF_OFFLINE:
        warnings.append("the latencies of an Offline run are its queue draining, and are left out")
    if run.scenario is Scenario.MLPERF_INTERACTIVE:
        warnings.append("the log says Server; its directory or its latency limits say Interactive")
    if QualityFlag.INVALID in run.flags:
        warnings.append(f"the result is {found['Result is'][:40]}: kept, flagged, and no evidence")
    warnings.append("the model is the name of the directory; send mlperf_log_detail.txt and system.json with it")
    return Parsed((run,), ASKS, tuple(warnings))


def read_detail(stream: BinaryIO) -> Detail:
    values: dict[str, object] = {}
    for number, line in enumerate(lines(stream), start=1):
        if number > MOST_LINES:
            raise Refused(f"there are more than {MOST_LINES} lines")
        match = re.match(r':::MLLOG \{"key": "(\w+)", "value": ("(?:[^"\\]|\\.){0,500}"|[-+.\w]{1,40}),', line)
        if match and match.group(1) in DETAIL_KEYS:
            values.setdefault(match.group(1), match.group(2).strip('"'))
    fields = Fields(values, "")
    queries = fields.count("result_query_count")
    samples, generated = fields.count("effective_samples_per_query"), fields.count("generated_samples_per_query")
    started = time_in(fields.text("test_datetime") or "")
    return Detail(
        loadgen_version=fields.text("loadgen_version"),
        started_at=started if started and started.tzinfo else None,
        completed_count=queries * (samples or 1) if queries else None,
        generated_count=queries * generated if queries and generated else None,
    )


def read_system(stream: BinaryIO) -> System:
    value = next(json_values(stream), None)
    fields = Fields(value, "system.json")
    per_node, nodes = fields.count("accelerators_per_node"), fields.count("number_of_nodes")
    return System(
        accelerator_name=fields.text("accelerator_model_name"),
        accelerator_count=per_node * nodes if per_node and nodes else None,
        node_count=nodes or None,
        framework=fields.text("framework"),
        submitter=fields.text("submitter"),
        division=fields.text("division"),
        availability=fields.text("status"),
        system_name=fields.text("system_name"),
    )


def joined(run: ImportedRun, detail: Detail | None, system: System | None) -> ImportedRun:
    """The run with what the files beside it say."""
    if detail is not None:
        run = replace(
            run,
            tool_version=detail.loadgen_version,
            started_at=detail.started_at,
            completed_count=detail.completed_count,
        )
        if detail.generated_count and detail.generated_count != detail.completed_count:
            run = replace(run, extras={**run.extras, "generated_samples": str(detail.generated_count)})
    if system is not None:
        run = replace(
            run,
            engine=system.framework,
            accelerator_name=system.accelerator_name,
            accelerator_count=system.accelerator_count,
            node_count=system.node_count,
            mlperf=replace(
                run.mlperf or Mlperf(),
                submitter=system.submitter,
                division=system.division,
                availability=system.availability,
                system_name=system.system_name,
            ),
        )
    return run
