"""The stored runs as evidence, kept up with what is written: each change is read once, and nothing else again.

A run is evidence for the records that its words lead to. When a record of the catalogue gets a new revision or another
name, the runs that its names lead to are read again, since the physics that they are compared with has moved.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import exp
from typing import Any

from sqlalchemy import ColumnElement, Engine, and_, func, or_
from sqlmodel import Session

from service.catalogue.benchmark_evidence import evidence_runs, measurements
from service.catalogue.benchmark_records import BenchmarkRun
from service.catalogue.benchmarks import RUNS, changes_since, evidence_revision, runs_where
from service.catalogue.shipped_benchmarks import shipped_runs
from service.catalogue.snapshot import NamedRecords, Snapshot
from service.catalogue.stored_evidence import SCENARIOS, published_of
from service.catalogue.tables import Origin
from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import Run
from service.sizing.run_terms import Phase

RUNS_AT_ONCE = 2000
PAUSE_S = 0.001  # between parts of a long load, for requests to get their turn


@dataclass(frozen=True, slots=True)
class Evidence:
    """``revision`` counts the writes to the runs. ``is_complete`` is false while a start still reads them.

    ``snapshot`` is the catalogue that the runs were compared with, ``None`` before the first is read.
    """

    store: EvidenceStore
    revision: int
    is_complete: bool
    snapshot: Snapshot | None


NO_EVIDENCE = Evidence(EvidenceStore.of(), 0, is_complete=False, snapshot=None)


class LiveEvidence:
    """``current`` is what answers lean on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self.current = NO_EVIDENCE

    def refresh(self, snapshot: Snapshot) -> None:
        """What has been stored and deleted since the last time, and the runs on records that have moved.

        While a first load is at it, others do not wait for its end: the next look finds what they wrote.
        """
        if not self._lock.acquire(blocking=self.current.is_complete):
            return
        try:
            with Session(self._engine) as session:
                self._read(session, snapshot)
        finally:
            self._lock.release()

    def _read(self, session: Session, snapshot: Snapshot) -> None:
        known = self.current if self.current.is_complete else NO_EVIDENCE  # a load that was broken off starts anew
        before = known.snapshot
        if before is not None and snapshot.revision < before.revision:
            snapshot = before  # another thread was faster
        if evidence_revision(session.connection()) != known.revision:
            changes = changes_since(session, known.revision, _can_be_evidence())
            known = self._replaced(known, gone=changes.deleted, new=changes.added, snapshot=snapshot)
            known = replace(known, revision=changes.revision)
        if before is not None and before.revision != snapshot.revision:
            moved = list(runs_where(session, *_can_be_evidence(), _is_on_moved(before, snapshot)))
            known = self._replaced(known, gone=[run.id for run in moved], new=moved, snapshot=snapshot)
        self.current = replace(known, is_complete=True, snapshot=snapshot)

    def _replaced(
        self, known: Evidence, *, gone: Collection[str], new: Iterable[BenchmarkRun], snapshot: Snapshot
    ) -> Evidence:
        """A first load is seen to grow; later changes are small and appear at once."""
        store = known.store.without_runs(evidence_ids(gone)) if gone else known.store
        left = iter(new)
        while some := list(islice(left, RUNS_AT_ONCE)):
            store = store.with_runs(evidence_of(some, snapshot))
            if not known.is_complete:
                self.current = replace(known, store=store)
                time.sleep(PAUSE_S)
        return replace(known, store=store)


def shipped_evidence(snapshot: Snapshot) -> Evidence:
    """Of this release's runs, straight from its files: for commands that run without a database."""
    return Evidence(
        EvidenceStore.of(evidence_of(shipped_runs(snapshot), snapshot)), 0, is_complete=True, snapshot=snapshot
    )


def evidence_of(runs: Iterable[BenchmarkRun], snapshot: Snapshot) -> list[Run]:
    """A run gives one piece of evidence for each phase that it measured."""
    usable = measurements((published_of(run) for run in runs), snapshot).usable
    run_ids = {each.id: each.published.series for each in usable}
    return [replace(run, id=_evidence_id(run_ids[run.id], run.configuration.phase)) for run in evidence_runs(usable)]


def evidence_about(run: BenchmarkRun, snapshot: Snapshot) -> tuple[list[Run], list[str]]:
    """What one run measured beside the physics, and why estimates do not lean on it, or on a part of it."""
    found = measurements([published_of(run)], snapshot)
    runs, reasons = evidence_runs(found.usable), list(found.left_out)
    if not found.usable and not reasons:
        reasons.append(f"estimates do not lean on runs of scenario {run.scenario or 'unknown'}")
    reasons += [
        f"its {each.configuration.phase} time is {exp(each.log_residual):.3g} times what physics expects: too far off"
        for each in runs
        if each.is_quarantined
    ]
    return runs, reasons


def evidence_ids(run_ids: Iterable[str]) -> Iterator[str]:
    return (_evidence_id(run_id, phase) for run_id in run_ids for phase in Phase)


def _evidence_id(run_id: str, phase: Phase) -> str:
    return f"{run_id} {phase}"


def run_id_of(evidence_id: str) -> str:
    """The stored run that a piece of evidence comes from.

    >>> run_id_of("01kbexample1234567 ttft")
    '01kbexample1234567'
    """
    return evidence_id.partition(" ")[0]


def _can_be_evidence() -> list[ColumnElement[bool]]:
    return [RUNS.c.calibrates, RUNS.c.accelerator.is_not(None), RUNS.c.scenario.in_([str(each) for each in SCENARIOS])]


def _is_on_moved(before: Snapshot, after: Snapshot) -> ColumnElement[bool]:
    """Stored on a moved record, or led to one by the name that was published, whichever record was stored with it.

    A model that appears may also be the one that a run without a record names.
    """
    accelerators = _moved(before.accelerators, after.accelerators)
    models = _moved(before.language_models, after.language_models)
    on_moved: list[ColumnElement[bool]] = [RUNS.c.accelerator.in_(accelerators), RUNS.c.model.in_(models)]
    if models:
        names = _names(before.language_models, models) | _names(after.language_models, models)
        is_named = and_(RUNS.c.origin == str(Origin.SHIPPED), func.lower(RUNS.c.model_name).in_(names))
        on_moved += [RUNS.c.model.is_(None), is_named]
    return or_(*on_moved)


def _moved(before: NamedRecords[Any], after: NamedRecords[Any]) -> set[str]:
    return {slug for slug, entry in after.by_slug.items() if before.by_slug.get(slug) is not entry}


def _names(records: NamedRecords[Any], slugs: set[str]) -> set[str]:
    aliases = (alias for alias, meant in records.slugs_by_alias.items() if not slugs.isdisjoint(meant))
    return slugs.union(aliases)
