"""Reads uploaded files and stores their runs: each file whole or not at all, and the same content once.

The API and the command line import alike.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO

from sqlalchemy import Engine
from sqlmodel import Session

from service.api.import_schemas import ImportedFileRead, ImportedRunRead, ImportMetadata, NotTakenOver
from service.api.imported_runs import Said, placed, stored_run
from service.catalogue.benchmark_records import BenchmarkRun, new_ids
from service.catalogue.benchmarks import FIELDS, evidence_writing, runs_of_content, save_runs
from service.catalogue.live_evidence import evidence_about
from service.catalogue.snapshot import Snapshot
from service.errors import Invalid
from service.imports import FileReport, import_files

Stored = Mapping[tuple[str, int], BenchmarkRun]
# What an import does not say of a run: its place, and what follows from the catalogue or from what is said.
NOT_SAID = frozenset(
    {
        "id",
        "origin",
        "created_at",
        "evidence_revision",
        "content_digest",
        "file_index",
        "file_name",
        "accelerator_revision",
        "accelerator_name",
        "model_name",
        "pair_key",
        "output_tokens_per_s_per_gpu",
        "calibrates",
        "details",
    }
)
SAID = tuple(name for name in FIELDS if name not in NOT_SAID)
SAID_IN_EXTRAS = tuple(ImportMetadata.model_fields)
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
                not_taken_over=list(_differences(earlier, run)) if earlier else [],
                not_leant_on=evidence_about(stored, snapshot)[1],
            )
        )
    file.warnings += _not_taken_over(file.stored)


def _differences(stored: BenchmarkRun, sent: BenchmarkRun) -> Iterator[NotTakenOver]:
    """What is sent and unlike what is stored; what is left out this time is no statement."""
    before, now = stored.read_details.extras, sent.read_details.extras
    pairs = [(name, getattr(stored, name), getattr(sent, name)) for name in SAID]
    pairs += [(name, before.get(name), now.get(name)) for name in SAID_IN_EXTRAS]
    for name, kept, said in pairs:
        if said is not None and said != kept and not _is_reading_of(said, kept):
            yield NotTakenOver(field=name, stored=kept, sent=said)


def _is_reading_of(said: Any, kept: Any) -> bool:
    """Whether it is the clock's reading of a time that is stored with its zone.

    >>> _is_reading_of("2026-12-01T19:55:51", "2026-12-01T19:55:51+01:00"), _is_reading_of("25", "256")
    (True, False)
    """
    return isinstance(kept, str) and kept.startswith((f"{said}+", f"{said}-"))


def _not_taken_over(runs: Iterable[ImportedRunRead]) -> Iterator[str]:
    """One warning for all runs that differ alike, as those of a sweep do."""
    alike: dict[str, list[str]] = {}
    for run in runs:
        if run.not_taken_over:
            told = (f"{each.field} {_shown(each.sent)} (stored: {_shown(each.stored)})" for each in run.not_taken_over)
            alike.setdefault(", ".join(told), []).append(run.id)
    for differences, ids in alike.items():
        are, stay, them = ("are", "stay as they are", "them") if len(ids) > 1 else ("is", "stays as it is", "it")
        yield (
            f"{', '.join(ids)} {are} stored already and {stay}; not taken over: {differences}; to store that, delete "
            f"{them} and import the file again"
        )


def _shown(value: str | float | None) -> str:
    """As JSON has it, a text without its quotes.

    >>> _shown(True), _shown(32.0), _shown(0.25), _shown("0.33.0"), _shown(None)
    ('true', '32', '0.25', '0.33.0', 'unknown')
    """
    if value is None or isinstance(value, str):
        return value or "unknown"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


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
