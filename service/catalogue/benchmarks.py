"""How benchmark runs are kept: stored once by content, listed by key, deleted for good.

Functions take the session of an ``evidence_writing`` block, or of any session to read. Each write counts up one
revision, and a run carries the revision that stored it, so that ``changes_since`` tells another process what is new
without reading everything again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, RowMapping, Table, insert, select, text, update
from sqlmodel import Session

from service.catalogue.benchmark_records import BenchmarkRun
from service.catalogue.database import writing_transaction
from service.catalogue.tables import (
    RUN_FACETS,
    BenchmarkRunRow,
    DeletedRunRow,
    EvidenceStateRow,
    Origin,
    RunFacetRow,
)
from service.errors import Conflict, NotFound

RUNS: Table = BenchmarkRunRow.__table__  # type: ignore[attr-defined]  # set by SQLModel
DELETED: Table = DeletedRunRow.__table__  # type: ignore[attr-defined]  # set by SQLModel
STATE: Table = EvidenceStateRow.__table__  # type: ignore[attr-defined]  # set by SQLModel
FACET_COUNTS: Table = RunFacetRow.__table__  # type: ignore[attr-defined]  # set by SQLModel
FIELDS = tuple(each.name for each in fields(BenchmarkRun))
COLUMNS = tuple(RUNS.c[name] for name in FIELDS)
VARIABLES_AT_ONCE = 500
ROWS_AT_ONCE = 2000


class UnknownBenchmarkRun(NotFound):
    code = "unknown_benchmark_run"
    title = "Unknown benchmark run"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no benchmark run {run_id[:40]!r}; the list of benchmark runs has them all")


class ShippedRunKept(Conflict):
    """Deleting it would last until the next release only, and would change every deployment's answers apart."""

    code = "shipped_run_kept"
    title = "A shipped run cannot be deleted"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"{run_id} is published evidence that this release ships; only runs that users stored can be deleted"
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened after one revision, up to ``revision``: take the deleted ones away first, then add."""

    revision: int
    added: Iterator[BenchmarkRun]
    deleted: Sequence[str]


@contextmanager
def evidence_writing(engine: Engine) -> Iterator[tuple[Session, int]]:
    """A write to the runs: one transaction, and the revision that it makes.

    The counter's row is written first: on Postgres it is what concurrent writers wait for.
    """
    with writing_transaction(engine) as session:
        connection = session.connection()
        connection.execute(update(STATE).values(revision=STATE.c.revision + 1))
        yield session, evidence_revision(connection)


def evidence_revision(connection: Connection) -> int:
    """Counts the writes to the runs."""
    revision: int = connection.execute(select(STATE.c.revision)).scalar_one()
    return revision


def save_runs(session: Session, runs: Iterable[BenchmarkRun], *, revision: int) -> None:
    """Store runs that are not stored yet, in bulk."""
    rows = [_values(run) | {"evidence_revision": revision} for run in runs]
    if rows:
        connection = session.connection()
        connection.execute(insert(RUNS), rows)
        connection.execute(COUNT, _facet_counts(rows))


def get_run(session: Session, run_id: str) -> BenchmarkRun:
    row = session.connection().execute(select(*COLUMNS).where(RUNS.c.id == run_id)).first()
    if row is None:
        raise UnknownBenchmarkRun(run_id)
    return run_of(row)


def runs_of_content(session: Session, digests: Iterable[str]) -> Mapping[tuple[str, int], BenchmarkRun]:
    """The stored runs of these files, by content and position: the same file twice is one run."""
    found: dict[tuple[str, int], BenchmarkRun] = {}
    for some in in_parts(sorted(set(digests))):
        for row in session.connection().execute(select(*COLUMNS).where(RUNS.c.content_digest.in_(some))):
            run = run_of(row)
            found[run.content_digest, run.file_index] = run
    return found


def delete_run(session: Session, run_id: str, *, revision: int) -> None:
    """A user's run alone; what is shipped is refused with the reason."""
    run = get_run(session, run_id)
    if run.origin is Origin.SHIPPED:
        raise ShippedRunKept(run_id)
    forget_runs(session, [run_id], revision=revision)


def forget_runs(session: Session, ids: Iterable[str], *, revision: int) -> None:
    """Delete them, whoever stored them, and note it for other processes."""
    connection = session.connection()
    facets = [RUNS.c[name] for name in RUN_FACETS]
    for some in in_parts(list(ids)):
        gone = connection.execute(select(*facets).where(RUNS.c.id.in_(some))).mappings().all()
        if counts := _facet_counts(gone):
            connection.execute(DISCOUNT, counts)
            connection.execute(FACET_COUNTS.delete().where(FACET_COUNTS.c.run_count == 0))
        connection.execute(RUNS.delete().where(RUNS.c.id.in_(some)))
        connection.execute(DELETED.delete().where(DELETED.c.id.in_(some)))
        connection.execute(insert(DELETED), [{"id": each, "evidence_revision": revision} for each in some])


# The same words on both databases.
COUNT = text(
    "INSERT INTO benchmark_run_facet (facet, value, run_count) VALUES (:facet, :value, :run_count) "
    "ON CONFLICT (facet, value) DO UPDATE SET run_count = benchmark_run_facet.run_count + excluded.run_count"
)
DISCOUNT = text(
    "UPDATE benchmark_run_facet SET run_count = run_count - :run_count WHERE facet = :facet AND value = :value"
)


def _facet_counts(runs: Iterable[Mapping[str, Any] | RowMapping]) -> list[dict[str, Any]]:
    """Writers come one after the other (``evidence_writing``), so that no count is lost."""
    counted = Counter((name, json.dumps(run[name])) for run in runs for name in RUN_FACETS)
    return [{"facet": name, "value": value, "run_count": count} for (name, value), count in counted.items()]


def changes_since(session: Session, revision: int, only: Iterable[ColumnElement[bool]] = ()) -> Changes:
    """The runs stored (``only`` those), and the ids deleted, after that revision; from revision 0 every run there is.

    A run that was stored and deleted in between is only among the deleted. The added ones are read as they are taken,
    within the session.
    """
    connection = session.connection()
    current = evidence_revision(connection)
    added = runs_where(session, RUNS.c.evidence_revision > revision, RUNS.c.evidence_revision <= current, *only)
    deleted = connection.execute(select(DELETED.c.id).where(DELETED.c.evidence_revision > revision))
    return Changes(current, added, [each.id for each in deleted])


def runs_where(session: Session, *conditions: ColumnElement[bool]) -> Iterator[BenchmarkRun]:
    """In no order, and few at a time in memory."""
    rows = session.connection().execution_options(yield_per=ROWS_AT_ONCE).execute(select(*COLUMNS).where(*conditions))
    return map(run_of, rows)


def run_of(row: Row[Any]) -> BenchmarkRun:
    """A row of ``COLUMNS``."""
    values = dict(zip(FIELDS, row, strict=True))
    values["origin"] = Origin(values["origin"])
    return BenchmarkRun(**values)


def in_parts(items: Sequence[str]) -> Iterator[Sequence[str]]:
    """Few enough at once for a statement's variables."""
    return (items[start : start + VARIABLES_AT_ONCE] for start in range(0, len(items), VARIABLES_AT_ONCE))


def _values(run: BenchmarkRun) -> dict[str, Any]:
    day = run.measured_on or ""
    return {
        **{name: getattr(run, name) for name in FIELDS},
        "measured_month": day[:7] if len(day) >= len("2026-12") else None,
        "measured_year": day[:4] or None,
    }
