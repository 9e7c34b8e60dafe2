"""Stores the runs that this release ships, at first start, and brings them up to date after later releases.

A shipped run's id follows from its published facts, so that every deployment knows it by the same one. Runs with a
quality flag are kept with it, and are left out of calibration unless the flag does not touch what is compared.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, select, update
from sqlmodel import Session

from service.catalogue.benchmark_evidence import is_usable
from service.catalogue.benchmark_facts import MlperfResult, PublishedRun, mlperf_results, published_runs
from service.catalogue.benchmark_records import (
    BenchmarkRun,
    Details,
    PowerScope,
    RunScenario,
    StoredMetric,
    main_figures,
    pair_key_of,
    shipped_id,
)
from service.catalogue.benchmarks import COLUMNS, RUNS, STATE, evidence_writing, forget_runs, run_of, save_runs
from service.catalogue.loading import release_digest
from service.catalogue.snapshot import Snapshot, read_snapshot
from service.catalogue.tables import Origin
from service.errors import ServiceError

log = logging.getLogger("sizing")

FORM = "2"  # of what is made of the facts: count it up when the code below says something else about the same line

SCENARIOS: Mapping[str, RunScenario] = {
    "static-batch": RunScenario.STATIC_BATCH,
    "closed-loop-concurrency aggregated": RunScenario.CLOSED_LOOP,
    "closed-loop-concurrency disaggregated": RunScenario.CLOSED_LOOP_DISAGGREGATED,
    "disaggregated-phase-rate": RunScenario.DISAGGREGATED_PHASE,
    "peak-over-concurrency-sweep": RunScenario.CONCURRENCY_SWEEP_PEAK,
    "open-loop-poisson": RunScenario.OPEN_LOOP,
    "agentic-trace-replay": RunScenario.TRACE_REPLAY,
    "offline-batch-limited": RunScenario.OFFLINE_BATCH_LIMITED,
    "offline-max-throughput": RunScenario.OFFLINE_MAX,
    "offline-small-burst": RunScenario.OFFLINE_SMALL_BURST,
    "single-stream": RunScenario.SINGLE_STREAM,
    "single-stream-decode": RunScenario.SINGLE_STREAM,
    "api-endpoint-single-user": RunScenario.SINGLE_USER_ENDPOINT,
    "prefill-throughput": RunScenario.PREFILL,
    "prefill-latency": RunScenario.PREFILL,
}
MLPERF_SCENARIOS: Mapping[str, RunScenario] = {
    "Offline": RunScenario.MLPERF_OFFLINE,
    "Server": RunScenario.MLPERF_SERVER,
    "Interactive": RunScenario.MLPERF_INTERACTIVE,
}


def load_shipped_runs(engine: Engine) -> int:
    """Store what is new or changed in this release; the number of runs written. Nothing to do is quick."""
    digest = hashlib.sha256(f"{FORM} {release_digest()}".encode()).hexdigest()
    stored = select(STATE.c.shipped_digest)
    with engine.connect() as connection:
        if connection.execute(stored).scalar_one() == digest:
            return 0
    wanted = {run.id: run for run in shipped_runs(read_snapshot(engine))}
    with evidence_writing(engine) as (session, revision):
        connection = session.connection()
        if connection.execute(stored).scalar_one() == digest:  # another replica was first
            session.rollback()
            return 0
        written = _bring_up_to_date(session, wanted, revision)
        connection.execute(update(STATE).values(shipped_digest=digest))
        connection.exec_driver_sql("ANALYZE")
    log.info("stored %s shipped benchmark runs", written)
    return written


def _bring_up_to_date(session: Session, wanted: Mapping[str, BenchmarkRun], revision: int) -> int:
    rows = session.connection().execute(select(*COLUMNS).where(RUNS.c.origin == str(Origin.SHIPPED)))
    kept, gone = set(), []
    for stored in map(run_of, rows):
        new = wanted.get(stored.id)
        if new and replace(new, created_at=stored.created_at, evidence_revision=stored.evidence_revision) == stored:
            kept.add(stored.id)
        else:
            gone.append(stored.id)
    forget_runs(session, gone, revision=revision)
    missing = [run for run in wanted.values() if run.id not in kept]
    save_runs(session, missing, revision=revision)
    return len(missing)


def shipped_runs(snapshot: Snapshot) -> Iterator[BenchmarkRun]:
    """Every shipped measurement as a run; the percentile lines of a run are metrics of it."""
    now = datetime.now(UTC)
    named = _Names(snapshot)
    seen: Counter[str] = Counter()
    for run in _merged(published_runs()):
        facts = _facts(run[0])
        seen[facts] += 1
        yield _of_published(run, f"{facts}{seen[facts]}", now, named)
    for result in mlperf_results():
        yield _of_mlperf(result, _facts(result), now, named)


OF_USERS = ("flags", "is_of_user")  # not of the line: what a shipped run is known by leaves them out


def _facts(line: PublishedRun | MlperfResult) -> str:
    return json.dumps([getattr(line, name) for name in line.__dataclass_fields__ if name not in OF_USERS])


class _Names:
    """Slugs and revisions of the records that names lead to, each looked up once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._models: dict[str, str | None] = {}

    def model(self, *names: str | None) -> str | None:
        for name in names:
            if name is None:
                continue
            if name not in self._models:
                self._models[name] = self._found(name)
            if slug := self._models[name]:
                return slug
        return None

    def _found(self, name: str) -> str | None:
        try:
            return self._snapshot.language_models.find(name).slug
        except ServiceError:  # no such model, or a name of several: the run keeps the name alone
            return None

    def accelerator(self, slug: str | None) -> dict[str, Any]:
        entry = self._snapshot.accelerators.by_slug.get(slug or "")
        return {"accelerator": entry.slug, "accelerator_revision": entry.revision} if entry else {}


def _merged(runs: Iterable[PublishedRun]) -> list[list[PublishedRun]]:
    """Each run with the lines that state its other percentiles."""
    found: list[list[PublishedRun]] = []
    central: dict[tuple[object, ...], list[PublishedRun]] = {}
    percentiles = []
    for run in runs:
        if run.is_percentile_row:
            percentiles.append(run)
        else:
            found.append([run])
            central.setdefault(_sweep_point(run), found[-1])
    for run in percentiles:
        central[_sweep_point(run)].append(run)
    return found


def _sweep_point(run: PublishedRun) -> tuple[object, ...]:
    return run.series, run.isl_tokens, run.osl_tokens, run.concurrency, run.request_rate_per_s


def _of_published(lines: list[PublishedRun], facts: str, now: datetime, named: _Names) -> BenchmarkRun:
    run = lines[0]
    metrics = tuple(dict.fromkeys(metric for line in lines for metric in _published_metrics(line)))
    extras = {
        "scenario_as_published": run.scenario,
        "model_as_published": run.model,
        "engine_as_published": run.engine,
        "meaning": run.meaning,
        "basis": run.basis,
        "series": run.series,
        "power_as_published": run.power_scope,
        "lengths_note": run.lengths_note,
    }
    remarks = tuple(part.strip() for part in (run.flag or "").split(";") if part.strip())
    return BenchmarkRun(
        id=shipped_id(facts),
        origin=Origin.SHIPPED,
        created_at=now,
        content_digest=hashlib.sha256(facts.encode()).hexdigest(),
        tool="published",
        **named.accelerator(run.accelerator),
        accelerator_name=run.accelerator_as_published,
        gpu_count=run.gpu_count,
        model=named.model(run.checkpoint, run.model),
        model_name=run.checkpoint or run.model,
        weights=run.weights,
        kv_cache=run.kv_cache,
        engine=run.engine.lower() if run.engine else None,
        engine_version=run.engine_version,
        tp=_width(run.tp),
        pp=_width(run.pp),
        ep=_width(run.ep),
        dp=_width(run.dp),
        layout=run.tp if run.tp and not run.tp.isdigit() else None,
        speculation="unspecified" if any("speculative" in each for each in remarks) else None,
        scenario=SCENARIOS[run.scenario],
        concurrency=run.concurrency,
        request_rate_per_s=run.request_rate_per_s,
        isl_mean_tokens=run.isl_tokens,
        osl_mean_tokens=run.osl_tokens,
        **main_figures(metrics, gpu_count=run.gpu_count),
        power_w=run.power_w,
        power_scope=_power_scope(run.power_scope) if run.power_w else None,
        measured_on=run.measured_on,
        source_title=run.source,
        source_ref=run.source_ref,
        calibrates=is_usable(run),
        details=Details(
            metrics=metrics,
            quality_remarks=remarks,
            inferred=run.inferred,
            extras={name: text for name, text in extras.items() if text},
        ).text(),
    )


def _width(text: str | None) -> int | None:
    """Disaggregated layouts are a text of several widths, which stands in ``layout``."""
    return int(text) if text and text.isdigit() else None


def _published_metrics(run: PublishedRun) -> Iterator[StoredMetric]:
    rates = ("output_tokens_per_s", "input_tokens_per_s", "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_user")
    for name in rates:
        if (rate := getattr(run, name)) is not None:
            yield StoredMetric(name, "overall", rate)
    if run.ttft_s is not None:
        yield StoredMetric("ttft_s", _statistic(run.ttft_statistic), run.ttft_s)
    if run.tpot_s is not None:
        yield StoredMetric(_tpot_meaning(run.tpot_statistic), _statistic(run.tpot_statistic), run.tpot_s)
    if run.e2e_s is not None:
        yield StoredMetric("e2e_latency_s", "unstated", run.e2e_s)
    if run.power_w is not None:
        yield StoredMetric("power_w", "max" if "peak" in (run.power_scope or "") else "mean", run.power_w)


def _statistic(published: str | None) -> str:
    """
    >>> _statistic("p99 (inter-token latency)"), _statistic("unspecified (InferenceX central value)"), _statistic(None)
    ('p99', 'unstated', 'unstated')
    """
    word = (published or "").split(" ")[0]
    if word == "single":
        return "overall"
    return word if word == "mean" or (word.startswith("p") and word[1:].isdigit()) else "unstated"


def _tpot_meaning(published: str | None) -> str:
    """What the column of the published table holds, by its own note."""
    if "inter-token" in (published or ""):
        return "inter_chunk_gap_s"
    return "decode_step_s" if published == "first decode step" else "tpot_s"


POWER_WORDS: tuple[tuple[str, PowerScope], ...] = (
    ("wall", PowerScope.SYSTEM_WALL),
    ("package", PowerScope.PACKAGE),
    ("apu", PowerScope.PACKAGE),
    ("gpu", PowerScope.BOARD),
)


def _power_scope(published: str | None) -> PowerScope | None:
    """
    >>> _power_scope("whole system at the wall, peak").value, _power_scope("GPU board (rocm-smi), peak sample").value
    ('system_wall', 'board')
    """
    text = (published or "").lower()
    return next((scope for word, scope in POWER_WORDS if word in text), None)


def _of_mlperf(result: MlperfResult, facts: str, now: datetime, named: _Names) -> BenchmarkRun:
    metrics = tuple(_mlperf_metrics(result))
    remarks = [] if result.note is None else [result.note]
    if result.weights_basis not in (None, "reported"):
        remarks.append(f"weights: {result.weights_basis}")
    extras = {name: getattr(result, name) for name in EXTRAS_OF_MLPERF}
    return BenchmarkRun(
        id=shipped_id(facts),
        origin=Origin.SHIPPED,
        created_at=now,
        content_digest=hashlib.sha256(facts.encode()).hexdigest(),
        tool="mlperf",
        tool_version=result.benchmark_version,
        **named.accelerator(result.accelerator),
        accelerator_name=result.accelerator_as_reported or result.accelerator_as_published,
        gpu_count=result.accelerator_count,
        node_count=result.node_count,
        model=named.model(result.model),
        model_name=result.model,
        weights=result.weights,
        scenario=MLPERF_SCENARIOS[result.scenario],
        mlperf_version=result.benchmark_version,
        mlperf_division=result.division,
        mlperf_availability=result.availability,
        mlperf_valid=True if result.division == "closed" else None,  # the closed division publishes no other
        submitter=result.submitter,
        system_name=result.system,
        ttft_limit_s=result.ttft_p99_limit_s,
        tpot_limit_s=result.tpot_p99_limit_s,
        pair_key=pair_key_of(
            result.benchmark_version,
            result.division,
            result.submitter,
            result.platform,
            result.model_variant,
            result.accelerator_as_published,
            result.accelerator_count,
        ),
        **main_figures(metrics, gpu_count=result.accelerator_count),
        power_w=result.system_power_w,
        power_scope=PowerScope.SYSTEM_WALL if result.system_power_w else None,
        measured_by=result.submitter,
        source_title=result.source,
        source_ref=f"{result.source_path} @ {result.source_commit}",
        calibrates=not remarks,
        details=Details(
            metrics=metrics,
            quality_remarks=tuple(remarks),
            extras={name: text for name, text in extras.items() if text},
        ).text(),
    )


EXTRAS_OF_MLPERF = (
    "model_variant",
    "accuracy_target",
    "platform",
    "framework",
    "os",
    "host_cpu",
    "weights_as_reported",
    "weights_basis",
    "accuracy",
    "submitter_notes",
)


def _mlperf_metrics(result: MlperfResult) -> Iterator[StoredMetric]:
    key = f"result ({result.result_unit})"
    if result.output_tokens_per_s is not None:
        yield StoredMetric("output_tokens_per_s", "overall", result.output_tokens_per_s, key)
    else:  # samples or queries a second
        yield StoredMetric("requests_per_s", "overall", result.result, key)
    if result.output_tokens_per_s_per_accelerator is not None:
        yield StoredMetric("output_tokens_per_s_per_gpu", "overall", result.output_tokens_per_s_per_accelerator)
    if result.system_power_w is not None:
        yield StoredMetric("power_w", "mean", result.system_power_w)
