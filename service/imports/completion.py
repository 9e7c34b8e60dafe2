"""Fills what a file leaves open with what the caller says, and names what is still open."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from service.imports.report import Ask, Parsed
from service.imports.run import OVERALL, ConcurrencyBasis, ImportedRun, Meaning, Metric, Scenario
from service.sizing.engines.engine import plain_version


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the caller says about all files of an upload; it fills what they leave open and changes no figure of theirs.

    The names are those of the API's metadata, so that a warning names what the caller can say.

    ``nobody_knows`` names fields that the caller was asked for and cannot answer.
    """

    accelerator: str | None = None
    gpu_count: int | None = None
    node_count: int | None = None
    model: str | None = None
    precision: str | None = None
    kv_cache: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tool_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    isl_tokens: float | None = None
    osl_tokens: float | None = None
    batch: int | None = None
    concurrency: float | None = None
    request_rate_per_s: float | None = None
    scenario: Scenario | None = None
    output_tokens_per_s: float | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_s: float | None = None
    failed_count: int | None = None
    speculation: str | None = None
    utc_offset: timedelta | None = None
    nobody_knows: frozenset[Ask] = frozenset()


FILLS = {
    "accelerator": "accelerator_name",
    "gpu_count": "accelerator_count",
    "node_count": "node_count",
    "model": "model_name",
    "precision": "weight_precision",
    "kv_cache": "kv_precision",
    "engine": "engine",
    "engine_version": "engine_version",
    "tool_version": "tool_version",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "dp": "dp",
    "isl_tokens": "isl_mean_tokens",
    "osl_tokens": "osl_mean_tokens",
    "concurrency": "concurrency",
    "request_rate_per_s": "request_rate_per_s",
    "scenario": "scenario",
    "started_at": "started_at",
    "finished_at": "finished_at",
    "duration_s": "duration_s",
    "failed_count": "failed_count",
    "speculation": "speculative_decoding",
}
NEEDS_NO_CONCURRENCY = frozenset({Scenario.OPEN_LOOP, Scenario.OFFLINE_MAX})
NAMES_A_RECORD = frozenset({"accelerator", "model"})
ANSWERS: dict[Ask, Callable[[ImportedRun], Any]] = {
    Ask.ACCELERATOR: lambda run: run.accelerator_name,
    Ask.GPU_COUNT: lambda run: run.accelerator_count,
    Ask.MODEL: lambda run: run.model_name,
    Ask.PRECISION: lambda run: run.weight_precision,
    Ask.ENGINE: lambda run: run.engine,
    Ask.ENGINE_VERSION: lambda run: run.engine_version,
    Ask.ISL_TOKENS: lambda run: run.isl_mean_tokens,
    Ask.OSL_TOKENS: lambda run: run.osl_mean_tokens,
    Ask.BATCH: lambda run: run.concurrency,
    Ask.CONCURRENCY: lambda run: run.concurrency or run.scenario in NEEDS_NO_CONCURRENCY,
    Ask.SCENARIO: lambda run: run.scenario or run.concurrency,
    Ask.OUTPUT_TOKENS_PER_S: lambda run: run.value(Meaning.OUTPUT_RATE, OVERALL),
    Ask.STARTED_AT: lambda run: run.started_at or run.local_started_at,
    Ask.FINISHED_AT: lambda run: run.finished_at,
    Ask.DURATION_S: lambda run: run.duration_s,
    Ask.FAILED_COUNT: lambda run: run.failed_count,
    Ask.TOOL_VERSION: lambda run: run.tool_version,
    Ask.UTC_OFFSET: lambda run: run.started_at or run.finished_at,
}


def completed(run: ImportedRun, metadata: Metadata) -> tuple[ImportedRun, list[str]]:
    """The run with its open fields filled, and where file and caller disagree; then the file stands.

    Accelerator and model name records of the catalogue, so that there another spelling is no disagreement. The release
    that a file states loses the letter of its tag, as one that the caller says has.
    """
    run = replace(run, engine_version=run.engine_version and plain_version(run.engine_version))
    filled: dict[str, Any] = {}
    conflicts = []
    for name, target in FILLS.items():
        said, read = getattr(metadata, name), getattr(run, target)
        if said is None:
            continue
        if read is None:
            filled[target] = said
        elif name not in NAMES_A_RECORD and str(read).lower() != str(said).lower() and read != said:
            conflicts.append(f"`{name}`: the file says {read}, the caller {said}; the file's is kept")
    if metadata.batch is not None and run.concurrency is None and run.concurrency_basis is ConcurrencyBasis.BATCH:
        filled["concurrency"] = metadata.batch
    if "concurrency" in filled and run.concurrency_basis is None:
        filled["concurrency_basis"] = ConcurrencyBasis.LIMIT
    run = replace(run, **filled, from_caller=(*run.from_caller, *filled))
    return zoned(with_output_rate(run, metadata), metadata.utc_offset), conflicts


def with_output_rate(run: ImportedRun, metadata: Metadata) -> ImportedRun:
    """A tool that writes requests and time but no output rate has one as soon as the caller says the output length."""
    if run.value(Meaning.OUTPUT_RATE, OVERALL) is not None:
        return run
    if metadata.output_tokens_per_s is not None:
        rate, key = metadata.output_tokens_per_s, "said by the caller"
    elif "osl_mean_tokens" in run.from_caller and run.completed_count and run.duration_s and run.osl_mean_tokens:
        rate = run.completed_count * run.osl_mean_tokens / run.duration_s
        key = "num_requests * osl_tokens of the caller / elapsed_time"
    else:
        return run
    return replace(run, metrics=(*run.metrics, Metric(Meaning.OUTPUT_RATE, OVERALL, rate, key)))


def zoned(run: ImportedRun, utc_offset: timedelta | None) -> ImportedRun:
    """The run with its local times as times, once the zone is known."""
    if utc_offset is None:
        return run
    zone = timezone(utc_offset)
    started = datetime.fromisoformat(run.local_started_at).replace(tzinfo=zone) if run.local_started_at else None
    finished = datetime.fromisoformat(run.local_finished_at).replace(tzinfo=zone) if run.local_finished_at else None
    return replace(run, started_at=run.started_at or started, finished_at=run.finished_at or finished)


def still_missing(parsed: Parsed, runs: tuple[ImportedRun, ...], metadata: Metadata) -> tuple[Ask, ...]:
    """The asks that some run, and for a power log the caller, leaves open."""
    said = {Ask(name) for name in (f.name for f in fields(metadata)) if name in set(Ask) and getattr(metadata, name)}
    if metadata.utc_offset is not None:
        said.add(Ask.UTC_OFFSET)
    answered = said | metadata.nobody_knows if not runs else metadata.nobody_knows - {Ask.ACCELERATOR, Ask.MODEL}
    open_asks = (ask for ask in parsed.asks if ask not in answered)
    return tuple(ask for ask in open_asks if not runs or any(not ANSWERS[ask](run) and _zero(ask, run) for run in runs))


def _zero(ask: Ask, run: ImportedRun) -> bool:
    """Whether an empty answer is no answer: no failures is one."""
    return not (ask is Ask.FAILED_COUNT and run.failed_count == 0)
