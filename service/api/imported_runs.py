"""From a run as an importer read it, to a run as it is stored: the two packages know nothing of each other.

Names lead to records exactly. What the caller names must be a record; what only a file names is kept as a name, with a
warning, when there is none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from service.api.measured_time import is_to_come
from service.catalogue.benchmark_records import (
    BenchmarkRun,
    Details,
    RunScenario,
    StoredMetric,
    main_figures,
    pair_key_of,
)
from service.catalogue.snapshot import Snapshot, SnapshotAccelerator, SnapshotLanguageModel
from service.catalogue.tables import Origin
from service.errors import Invalid, ServiceError
from service.imports import ImportedRun, Kind, Mlperf, Power, QualityFlag
from service.imports.completion import zoned

LARGEST_COUNT = 2**31 - 1
# Flags that say what was left out of the record, and nothing against the figures that are in it.
HARMLESS_FLAGS = frozenset({QualityFlag.NOT_FINITE_DROPPED})
TEXT_LIMITS = {
    "tool": 100,
    "tool_version": 100,
    "accelerator_name": 300,
    "model_name": 500,
    "weights": 100,
    "kv_cache": 100,
    "engine": 100,
    "engine_version": 100,
    "speculation": 100,
    "mlperf_version": 40,
    "mlperf_division": 40,
    "mlperf_availability": 40,
    "submitter": 200,
    "system_name": 500,
    "measured_by": 200,
    "source_title": 500,
    "source_ref": 500,
    "file_name": 300,
}


@dataclass(frozen=True, slots=True)
class Said:
    """What the caller says of every run of an upload, resolved; it stands over what a file names."""

    accelerator: SnapshotAccelerator | None = None
    model: SnapshotLanguageModel | None = None
    compute: str | None = None
    prefix_caching: bool | None = None
    engine_limits: Mapping[str, int] = field(default_factory=dict)
    measured_by: str | None = None
    source_title: str | None = None
    source_ref: str | None = None


def stored_run(
    run: ImportedRun, *, kind: Kind | None, said: Said, snapshot: Snapshot
) -> tuple[BenchmarkRun, list[str]]:
    """The run without its place (id, file, revision), and warnings. ``Invalid`` where a figure cannot be stored."""
    _refuse_time_to_come(run)
    warnings: list[str] = []
    accelerator = _record(snapshot, "accelerator", run.accelerator_name, said.accelerator, warnings)
    model = _record(snapshot, "model", run.model_name, said.model, warnings)
    metrics = tuple(_metrics(run))
    mlperf = run.mlperf or Mlperf()
    remarks = tuple(str(flag) for flag in run.flags)
    texts: dict[str, str | None] = {
        "tool": run.tool,
        "tool_version": run.tool_version,
        "accelerator_name": run.accelerator_name,
        "model_name": run.model_name,
        "weights": _lower(run.weight_precision),
        "kv_cache": _lower(run.kv_precision),
        "engine": _lower(run.engine),
        "engine_version": run.engine_version,
        "speculation": run.speculative_decoding,
        "mlperf_version": mlperf.version,
        "mlperf_division": _lower(mlperf.division),
        "mlperf_availability": _lower(mlperf.availability),
        "submitter": mlperf.submitter,
        "system_name": mlperf.system_name,
        "measured_by": said.measured_by or mlperf.submitter,
        "source_title": said.source_title,
        "source_ref": said.source_ref,
    }
    counts: dict[str, Any] = {
        "gpu_count": run.accelerator_count,
        "node_count": run.node_count,
        "tp": run.tp,
        "pp": run.pp,
        "ep": run.ep,
        "dp": run.dp,
    }
    numbers: dict[str, Any] = {
        "concurrency": run.concurrency,
        "isl_mean_tokens": run.isl_mean_tokens,
        "isl_std_tokens": run.isl_std_tokens,
        "osl_mean_tokens": run.osl_mean_tokens,
        "osl_std_tokens": run.osl_std_tokens,
        "request_rate_per_s": run.request_rate_per_s,
    }
    stored = BenchmarkRun(
        id="",
        origin=Origin.USER,
        created_at=datetime.now(UTC),
        content_digest="",
        **_texts(texts),
        **_counts(counts),
        **_finite_numbers(numbers),
        accelerator=accelerator.slug if accelerator else None,
        accelerator_revision=accelerator.revision if accelerator else None,
        model=model.slug if model else None,
        compute=said.compute,
        prefix_caching=said.prefix_caching,
        layout=_layout(run),
        scenario=_scenario(run),
        mlperf_valid=mlperf.valid,
        ttft_limit_s=mlperf.ttft_limit_s,
        tpot_limit_s=mlperf.tpot_limit_s,
        pair_key=_pair_key(run, accelerator.slug if accelerator else None),
        **main_figures(metrics, gpu_count=run.accelerator_count),
        power_w=run.power.mean_w if run.power else None,
        power_scope=str(run.power.scope) if run.power else None,
        measured_on=_measured_on(run),
        calibrates=HARMLESS_FLAGS.issuperset(run.flags),
        details=Details(
            metrics=metrics,
            quality_remarks=remarks,
            inferred=run.from_caller,
            extras=dict(_extras(run, kind)) | {name: str(limit) for name, limit in said.engine_limits.items()},
        ).text(),
    )
    return stored, warnings


def placed(run: BenchmarkRun, *, run_id: str, content_digest: str, file_index: int, file_name: str) -> BenchmarkRun:
    """The run in its file."""
    return replace(
        run,
        id=run_id,
        content_digest=content_digest,
        file_index=file_index,
        file_name=clean(file_name, TEXT_LIMITS["file_name"]),
    )


def clean(text: str | None, limit: int) -> str | None:
    r"""What any database can hold: no control characters, no halves of surrogate pairs, not too long.

    >>> clean("a\x00b\ud800", 10), clean(" \n", 10)
    ('a?b?', None)
    """
    if text is None:
        return None
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(each if each.isprintable() else "?" for each in whole.strip())[:limit] or None


def _record(snapshot: Snapshot, noun: str, name: str | None, said: Any, warnings: list[str]) -> Any:
    """The record that the caller named, else the one that the file's name leads to."""
    if name is None:
        return said
    records: Any = snapshot.accelerators if noun == "accelerator" else snapshot.language_models
    try:
        found = records.get(name)
    except ServiceError as error:
        warnings.append(
            f"the file names the {noun} {clean(name, 200)!r}, which is no record; the caller's {said.slug} is taken"
            if said
            else f"{error.detail}; the run is stored under that name, and estimates cannot lean on it: delete it and "
            f"send the file again, saying `{noun}`"
        )
        return said
    if said is not None and found.slug != said.slug:
        warnings.append(f"the file names the {noun} {found.slug}, the caller {said.slug}; the caller's is taken")
    return said or found


def _metrics(run: ImportedRun) -> Iterator[StoredMetric]:
    for metric in run.metrics:
        if isfinite(metric.value):
            yield StoredMetric(str(metric.meaning), str(metric.statistic), metric.value, clean(metric.source_key, 200))
    if run.power:
        yield StoredMetric("power_w", "mean", run.power.mean_w, clean(run.power.source, 200))


def _texts(texts: dict[str, str | None]) -> dict[str, Any]:
    return {name: clean(text, TEXT_LIMITS[name]) for name, text in texts.items()}


def _counts(counts: dict[str, Any]) -> dict[str, Any]:
    for name, value in counts.items():
        if value is not None and not 1 <= value <= LARGEST_COUNT:
            raise Invalid(f"{name} is {value}, which counts nothing", field=(name,))
    return counts


def _finite_numbers(numbers: dict[str, Any]) -> dict[str, Any]:
    """An infinite request rate says that requests did not wait; it stands in ``extras``."""
    return {name: value if value is not None and isfinite(value) else None for name, value in numbers.items()}


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None


def _scenario(run: ImportedRun) -> RunScenario | None:
    """Prefill and decode on GPUs of their own are another experiment than both on the same."""
    if run.scenario is None:
        return None
    in_flight = (str(RunScenario.CLOSED_LOOP), str(RunScenario.SINGLE_STREAM))
    if run.prefill_gpu_count and run.decode_gpu_count and str(run.scenario) in in_flight:
        return RunScenario.CLOSED_LOOP_DISAGGREGATED
    return RunScenario(str(run.scenario))


def _layout(run: ImportedRun) -> str | None:
    if run.prefill_gpu_count and run.decode_gpu_count:
        return run.layout or f"P{run.prefill_gpu_count}/D{run.decode_gpu_count} GPUs"
    return None


def _refuse_time_to_come(run: ImportedRun) -> None:
    """A clock reading whose zone nobody said is taken for UTC."""
    dated = zoned(run, timedelta())
    for moment in (dated.started_at, dated.finished_at):
        if moment and is_to_come(moment):
            raise Invalid(
                f"it was measured at {moment.isoformat()}, which lies in the future: correct the time in the file"
            )


def _measured_on(run: ImportedRun) -> str | None:
    """The day in UTC, or of the clock whose zone nobody said."""
    moment = run.started_at or run.finished_at
    if moment is not None:
        return moment.astimezone(UTC).date().isoformat()
    local = run.local_started_at or run.local_finished_at
    return local[:10] if local else None


def _pair_key(run: ImportedRun, accelerator: str | None) -> str | None:
    mlperf = run.mlperf
    if mlperf is None or not (mlperf.system_name or mlperf.submitter):
        return None
    named = (mlperf.version, mlperf.division, mlperf.submitter, mlperf.system_name, run.model_name)
    return pair_key_of(*named, accelerator or run.accelerator_name, run.accelerator_count)


def _extras(run: ImportedRun, kind: Kind | None) -> Iterator[tuple[str, str]]:
    mlperf = run.mlperf or Mlperf()
    said: dict[str, Any] = {
        "kind": kind,
        "position": run.position,
        "client_backend": run.client_backend,
        "model_file": run.model_file,
        "model_bytes": run.model_bytes,
        "parameter_count": run.parameter_count,
        "started_at": run.started_at.isoformat() if run.started_at else run.local_started_at,
        "finished_at": run.finished_at.isoformat() if run.finished_at else run.local_finished_at,
        "duration_s": run.duration_s,
        "concurrency_basis": run.concurrency_basis,
        "request_rate_per_s": "unlimited" if run.request_rate_per_s == float("inf") else None,
        "context_depth_tokens": run.context_depth_tokens,
        "completed_count": run.completed_count,
        "failed_count": run.failed_count,
        "incomplete_count": run.incomplete_count,
        "gpu_layer_count": run.gpu_layer_count,
        "mlperf_scenario_as_logged": mlperf.scenario_as_logged,
        "mlperf_mode": mlperf.mode,
        "mlperf_location": mlperf.location,
        "not_finite": ", ".join(run.dropped_keys[:20]) or None,
        **run.extras,
        **(_power_extras(run.power) if run.power else {}),
    }
    for name, value in list(said.items())[:60]:
        if value is not None and (text := clean(str(value), 500)):
            yield clean(name, 100) or "?", text


def _power_extras(power: Power) -> dict[str, Any]:
    return {
        "power_accelerator_count": power.accelerator_count,
        "power_sample_count": power.sample_count,
        "power_energy_j": power.energy_j,
        "power_busy_mean_w": power.busy_mean_w,
        "power_source": power.source,
        "power_cut_to_run": power.cut_to_run,
    }
