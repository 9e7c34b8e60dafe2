"""The stored runs as evidence, kept up with what is written: each change is read once, and nothing else again.

A run is evidence for the records that its words lead to. When a record of the catalogue gets a new revision, the runs
on it are read again, since the physics that they are compared with has moved.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import exp
from typing import Any

from sqlalchemy import ColumnElement, Engine, or_
from sqlmodel import Session

from service.catalogue.benchmark_evidence import evidence_runs, measurements
from service.catalogue.benchmark_records import BenchmarkRun
from service.catalogue.benchmarks import RUNS, changes_since, evidence_revision, runs_where
from service.catalogue.shipped_benchmarks import shipped_runs
from service.catalogue.snapshot import NamedRecords, Snapshot
from service.catalogue.stored_evidence import SCENARIOS, published_of
from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import Run
from service.sizing.run_terms import Phase

RUNS_AT_ONCE = 2000
PAUSE_S = 0.001  # between parts of a long load, for requests to get their turn


@dataclass(frozen=True, slots=True)
class Evidence:
    """``revision`` counts the writes to the runs. ``is_complete`` is false while a start still reads them."""

    store: EvidenceStore
    revision: int
    is_complete: bool


class LiveEvidence:
    """``current`` is what answers lean on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self.current = Evidence(EvidenceStore.of(), 0, is_complete=False)

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
        if not self.current.is_complete:  # a load that was broken off starts anew
            self.current = Evidence(EvidenceStore.of(), 0, is_complete=False)
        if self._snapshot is not None and snapshot.revision < self._snapshot.revision:
            snapshot = self._snapshot  # another thread was faster
        revision = self.current.revision
        if evidence_revision(session.connection()) != revision:
            changes = changes_since(session, revision, _can_be_evidence())
            self._replace(gone=changes.deleted, new=changes.added, snapshot=snapshot)
            revision = changes.revision
        if self._snapshot is not None and self._snapshot.revision != snapshot.revision:
            moved = list(runs_where(session, *_can_be_evidence(), _is_on_moved(self._snapshot, snapshot)))
            self._replace(gone=[run.id for run in moved], new=moved, snapshot=snapshot)
        self.current = Evidence(self.current.store, revision, is_complete=True)
        self._snapshot = snapshot

    def _replace(self, *, gone: Collection[str], new: Iterable[BenchmarkRun], snapshot: Snapshot) -> None:
        """A first load is seen to grow; later changes are small and appear at once."""
        current = self.current
        store = current.store.without_runs(evidence_ids(gone)) if gone else current.store
        left = iter(new)
        while some := list(islice(left, RUNS_AT_ONCE)):
            store = store.with_runs(evidence_of(some, snapshot))
            if not current.is_complete:
                self.current = replace(current, store=store)
                time.sleep(PAUSE_S)
        self.current = replace(current, store=store)


def shipped_evidence(snapshot: Snapshot) -> Evidence:
    """Of this release's runs, straight from its files: for commands that run without a database."""
    return Evidence(EvidenceStore.of(evidence_of(shipped_runs(snapshot), snapshot)), 0, is_complete=True)


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
    """A model that appears may be the one that a run without a record names."""
    accelerators = _moved(before.accelerators, after.accelerators)
    models = _moved(before.language_models, after.language_models)
    on_moved = [RUNS.c.accelerator.in_(accelerators), RUNS.c.model.in_(models)]
    return or_(*on_moved, *([RUNS.c.model.is_(None)] if models else []))


def _moved(before: NamedRecords[Any], after: NamedRecords[Any]) -> list[str]:
    return [slug for slug, entry in after.by_slug.items() if before.by_slug.get(slug) is not entry]
