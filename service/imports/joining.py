"""Puts together files of one upload that belong together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from service.imports.fields import LONGEST_S
from service.imports.mlperf import Detail, System, joined
from service.imports.power_log import PowerLog
from service.imports.report import Kind, Parsed
from service.imports.run import ImportedRun


@dataclass(slots=True)
class FileRead:
    """A file on its way to its report."""

    name: str
    kind: Kind | None
    digest: str
    parsed: Parsed | None = None
    refusal: str | None = None
    detail: Detail | None = None
    system: System | None = None
    runs: tuple[ImportedRun, ...] = ()
    notes: list[str] = field(default_factory=list)
    is_joined: bool = False


def directory(name: str) -> str:
    return name.rpartition("/")[0]


def stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]


def join_mlperf(files: Sequence[FileRead]) -> None:
    """Gives each summary log the detail log beside it, and the system of its directory, or of its submission."""
    summaries = [each for each in files if each.kind is Kind.MLPERF_SUMMARY_LOG and each.runs]
    crowded = Counter(directory(each.name) for each in summaries)
    for summary in summaries:
        if crowded[directory(summary.name)] > 1:
            summary.notes.append("several summary logs stand in one directory: the files beside them were not joined")
            continue
        detail = next((each for each in files if each.detail and directory(each.name) == directory(summary.name)), None)
        system = nearest_system(summary.name, [each for each in files if each.system])
        for beside in (detail, system):
            if beside is not None:
                beside.is_joined = True
                beside.notes.append(f"joined to {summary.name}")
        summary.runs = tuple(
            joined(run, detail.detail if detail else None, system.system if system else None) for run in summary.runs
        )
        generated = summary.runs[0].extras.get("generated_samples")
        if generated:
            summary.notes.append(f"the test generated {generated} samples, not the samples_per_query of its settings")


def nearest_system(name: str, systems: Sequence[FileRead]) -> FileRead | None:
    """The description in the same directory or above it; else the one that a directory above is named after."""
    above = [each for each in systems if f"{directory(name)}/".startswith(f"{directory(each.name)}/".lstrip("/"))]
    if above:
        return max(above, key=lambda each: len(each.name))
    return next((each for each in systems if stem(each.name) in name.split("/")), None)


def join_power(files: Sequence[FileRead], utc_offset: timedelta | None) -> None:
    """Gives each run the power that was read while it ran."""
    for power_file in files:
        log = power_file.parsed.power if power_file.parsed else None
        if log is None or log.times_s is None:
            continue
        for file in files:
            file.runs = tuple(_with_power(run, log, utc_offset, file, power_file) for run in file.runs)


def _with_power(
    run: ImportedRun, log: PowerLog, utc_offset: timedelta | None, file: FileRead, power_file: FileRead
) -> ImportedRun:
    span = run_span(run, log, utc_offset)
    if span is None or run.power is not None:
        return run
    power = log.between(start_s=span[0], end_s=span[1]).power(cut_to_run=True)
    if power is None:
        return run
    power_file.is_joined = True
    where = f"{file.name}, {run.position}" if run.position else file.name
    power_file.notes.append(f"cut to the time of {where}: {power.sample_count} samples")
    if run.accelerator_count is not None and run.accelerator_count != power.accelerator_count:
        file.notes.append(
            f"the power is of {power.accelerator_count} accelerators, the run used {run.accelerator_count}"
        )
    return replace(run, power=power)


def run_span(run: ImportedRun, log: PowerLog, utc_offset: timedelta | None) -> tuple[float, float] | None:
    """When the run began and ended on the log's clock, or ``None`` if that is not known.

    A log and a run that both name no zone are taken to be of one clock: tools write the clock of the machine.
    """
    same_clock = not log.zone_known and utc_offset is None and run.started_at is None
    if same_clock:
        start, end = _local(run.local_started_at), _local(run.local_finished_at)
    else:
        shift = utc_offset or timedelta()
        if not log.zone_known and utc_offset is None:
            return None
        shift = timedelta() if log.zone_known else shift
        start = run.started_at + shift if run.started_at else None
        end = run.finished_at + shift if run.finished_at else None
    length = timedelta(seconds=run.duration_s) if run.duration_s and run.duration_s <= LONGEST_S else None
    start = start or (end - length if end and length else None)
    end = end or (start + length if start and length else None)
    return (start.timestamp(), end.timestamp()) if start and end else None


def _local(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
