"""Reads uploaded files and stores their runs: each file whole or not at all, and the same content once.

The API and the command line import alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO

from sqlalchemy import Engine
from sqlmodel import Session

from service.api.import_schemas import ImportedFileRead, ImportedRunRead, ImportMetadata
from service.api.imported_runs import Said, placed, stored_run
from service.catalogue.benchmark_records import BenchmarkRun, new_ids
from service.catalogue.benchmarks import evidence_writing, runs_of_content, save_runs
from service.catalogue.live_evidence import evidence_about
from service.catalogue.snapshot import Snapshot
from service.errors import Invalid
from service.imports import FileReport, import_files

Stored = Mapping[tuple[str, int], BenchmarkRun]
IDENTITY = ("accelerator", "model", "gpu_count", "weights", "kv_cache", "engine", "engine_version", "scenario", "tp")
NOT_STORED = "nothing of this upload was stored, since not every file could be (atomic)"


@dataclass(slots=True)
class _File:
    """One file on its way: its report, the runs it gives, and what became of them."""

    report: FileReport
    runs: list[BenchmarkRun] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reason: str | None = None
    stored: list[ImportedRunRead] = field(default_factory=list)


def import_runs(
    files: Iterable[tuple[str, BinaryIO]],
    metadata: ImportMetadata,
    *,
    snapshot: Snapshot,
    engine: Engine,
    atomic: bool = False,
) -> list[ImportedFileRead]:
    """A report for each file, those inside of archives included. ``atomic`` stores all of them or none."""
    said, told = metadata.resolved(snapshot), metadata.for_importers()
    found = [_prepared(each, said, snapshot) for each in import_files(files, kind=metadata.kind, metadata=told)]
    if atomic and any(each.reason for each in found):
        for each in found:
            each.runs = []
            each.reason = each.reason or NOT_STORED
    else:
        _store(found, engine, snapshot)
    any_stored = any(each.stored for each in found)
    return [_read_of(each, any_stored=any_stored) for each in found]


def _prepared(report: FileReport, said: Said, snapshot: Snapshot) -> _File:
    file = _File(report, warnings=list(report.warnings), reason=report.reason)
    if not report.accepted:
        file.reason = report.reason or "it could not be read"
    elif report.runs and report.required:
        names = ", ".join(f"`{each}`" for each in report.required)
        file.reason = f"it does not say {names}: say it with the import, or name in `nobody_knows` what nobody knows"
    else:
        try:
            for run in report.runs:
                stored, warnings = stored_run(run, kind=report.kind, said=said, snapshot=snapshot)
                file.runs.append(stored)
                file.warnings += [each for each in warnings if each not in file.warnings]
        except Invalid as error:
            file.runs, file.reason = [], error.detail
    return file


def _store(files: Sequence[_File], engine: Engine, snapshot: Snapshot) -> None:
    wanted = [each for each in files if each.runs]
    digests = [each.report.content_digest for each in wanted]
    with Session(engine) as session:
        known = runs_of_content(session, digests)
    if any((each.report.content_digest, index) not in known for each in wanted for index in range(len(each.runs))):
        with evidence_writing(engine) as (session, revision):
            known = runs_of_content(session, digests)  # again: another writer may have been first
            new = _new_runs(wanted, known)
            save_runs(session, new.values(), revision=revision)
        for each in wanted:
            _note(each, known, new, snapshot)
    else:
        for each in wanted:
            _note(each, known, {}, snapshot)


def _new_runs(files: Sequence[_File], known: Stored) -> dict[tuple[str, int], BenchmarkRun]:
    """Those that are not stored; a file that was sent twice at once counts once."""
    new: dict[tuple[str, int], BenchmarkRun] = {}
    for file in files:
        digest = file.report.content_digest
        ids = new_ids(datetime.now(UTC), len(file.runs))
        for index, (run, run_id) in enumerate(zip(file.runs, ids, strict=True)):
            if (digest, index) not in known:
                new.setdefault(
                    (digest, index),
                    placed(run, run_id=run_id, content_digest=digest, file_index=index, file_name=file.report.name),
                )
    return new


def _note(file: _File, known: Stored, new: Stored, snapshot: Snapshot) -> None:
    digest = file.report.content_digest
    for index, run in enumerate(file.runs):
        earlier = known.get((digest, index))
        stored = earlier or new[digest, index]
        file.stored.append(
            ImportedRunRead(
                id=stored.id,
                already_stored=earlier is not None,
                not_leant_on=evidence_about(stored, snapshot)[1],
            )
        )
        if earlier and (moved := [each for each in IDENTITY if getattr(earlier, each) != getattr(run, each)]):
            file.warnings.append(
                f"{earlier.id} was stored earlier with another {', '.join(moved)}; it is kept: delete it to say anew"
            )


def _read_of(file: _File, *, any_stored: bool) -> ImportedFileRead:
    """A file without runs of its own, such as a power log, belongs to the runs that were stored beside it."""
    report = file.report
    accepted = bool(file.stored) or (file.reason is None and report.is_joined and any_stored)
    reason = file.reason
    if not accepted and reason is None:
        reason = "it has no runs of its own, and belongs to no run that was stored with it"
    return ImportedFileRead(
        name=report.name,
        kind=report.kind,
        accepted=accepted,
        content_digest=report.content_digest,
        runs=file.stored,
        missing=list(report.missing),
        suggested=dict(report.suggested),
        warnings=file.warnings,
        reason=reason,
    )
