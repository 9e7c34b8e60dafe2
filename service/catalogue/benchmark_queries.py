"""Finding runs among a million: filters that indexes serve, pages by key, counts by value, and MLPerf runs in pairs."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, exists, func, select, tuple_
from sqlmodel import Session

from service.catalogue.benchmark_records import BenchmarkRun, RunScenario
from service.catalogue.benchmarks import COLUMNS, RUNS, evidence_revision, run_of

ROWS_AT_ONCE = 2000
MOST_FACET_VALUES = 200
MOST_KEPT_FACETS = 2000

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends included; ``None`` leaves an end open. A run without the figure is in no range."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """By column. ``any_of`` holds where the value is one of those, ``prefixes`` where it begins so."""

    any_of: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        for name, values in self.any_of.items():
            column = RUNS.c[name]
            found.append(column == values[0] if len(values) == 1 else column.in_(values))
        for name, span in self.ranges.items():
            if span.low is not None:
                found.append(RUNS.c[name] >= span.low)
            if span.high is not None:
                found.append(RUNS.c[name] <= span.high)
        for name, prefix in self.prefixes.items():  # a range, so that an index serves it
            found += [RUNS.c[name] >= prefix, RUNS.c[name] < prefix + "\U0010ffff"]
        return found


@dataclass(frozen=True, slots=True)
class Order:
    """By a column and, among equals, by id. Runs that do not have the column's figure are not in the list."""

    column: str = "id"
    descending: bool = False

    def key(self, run: BenchmarkRun) -> tuple[Value, ...]:
        return (run.id,) if self.column == "id" else (getattr(run, self.column), run.id)


def list_runs(
    session: Session, wanted: RunFilter, order: Order, *, limit: int, after: Sequence[Value] | None = None
) -> list[BenchmarkRun]:
    """The next ``limit`` runs after the key of the last one."""
    keys = [RUNS.c.id] if order.column == "id" else [RUNS.c[order.column], RUNS.c.id]
    query = select(*COLUMNS).where(*wanted.conditions())
    if len(keys) > 1:
        query = query.where(keys[0].is_not(None))
    if after is not None:
        position, last = tuple_(*keys), tuple(after)
        query = query.where(position < last if order.descending else position > last)
    query = query.order_by(*(key.desc() if order.descending else key for key in keys)).limit(limit)
    return [run_of(row) for row in session.connection().execute(query)]


def every_run(session: Session, wanted: RunFilter, order: Order) -> Iterator[list[BenchmarkRun]]:
    """All of them, a bounded number at once, each part a statement of its own: a slow reader blocks no writer."""
    after: Sequence[Value] | None = None
    while True:
        some = list_runs(session, wanted, order, limit=ROWS_AT_ONCE, after=after)
        session.rollback()
        if some:
            yield some
        if len(some) < ROWS_AT_ONCE:
            return
        after = order.key(some[-1])


def facet(session: Session, wanted: RunFilter, column: str) -> list[tuple[Value | None, int]]:
    """How many of the runs have each value, the most frequent first; ``None`` counts those that do not say."""
    count = func.count().label("run_count")
    query = (
        select(RUNS.c[column], count)
        .where(*wanted.conditions())
        .group_by(RUNS.c[column])
        .order_by(count.desc(), RUNS.c[column].nulls_last())
        .limit(MOST_FACET_VALUES)
    )
    return [(row[0], row[1]) for row in session.connection().execute(query)]


class FacetCounts:
    """Counts that are kept until the next write: of a million runs they take a tenth of a second and more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revision = -1
        self._kept: dict[tuple[str, str], list[tuple[Value | None, int]]] = {}

    def of(self, session: Session, wanted: RunFilter, column: str) -> list[tuple[Value | None, int]]:
        """As ``facet``."""
        revision = evidence_revision(session.connection())
        key = (repr(wanted), column)
        with self._lock:
            if revision != self._revision or len(self._kept) >= MOST_KEPT_FACETS:
                self._revision, self._kept = revision, {}
            if (kept := self._kept.get(key)) is not None:
                return kept
        counted = facet(session, wanted, column)
        with self._lock:
            if revision == self._revision:
                self._kept[key] = counted
        return counted


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs of one system and model. ``ratio`` is the other's output rate over the Offline one's."""

    offline: BenchmarkRun
    other: BenchmarkRun

    @property
    def ratio(self) -> float | None:
        offline, other = self.offline.output_tokens_per_s, self.other.output_tokens_per_s
        return other / offline if offline and other else None


def list_pairs(
    session: Session, wanted: RunFilter, other: RunScenario, *, limit: int, after: str | None = None
) -> list[RunPair]:
    """Offline runs that have a partner in the other scenario, by id, each with its first partner.

    A pair is of one benchmark version, division, submitter, system, model variant and hardware.
    """
    partner = RUNS.alias("partner")
    paired = exists(select(partner.c.id).where(partner.c.pair_key == RUNS.c.pair_key, partner.c.scenario == str(other)))
    query = select(*COLUMNS).where(
        RUNS.c.scenario == str(RunScenario.MLPERF_OFFLINE), RUNS.c.pair_key.is_not(None), paired, *wanted.conditions()
    )
    if after is not None:
        query = query.where(RUNS.c.id > after)
    connection = session.connection()
    offline = [run_of(row) for row in connection.execute(query.order_by(RUNS.c.id).limit(limit))]
    keys = sorted({str(run.pair_key) for run in offline})
    partners: dict[str, BenchmarkRun] = {}
    first = (
        select(func.min(RUNS.c.id))
        .where(RUNS.c.pair_key.in_(keys), RUNS.c.scenario == str(other))
        .group_by(RUNS.c.pair_key)
    )
    for row in connection.execute(select(*COLUMNS).where(RUNS.c.id.in_(first))):
        run = run_of(row)
        partners[str(run.pair_key)] = run
    return [RunPair(run, partners[str(run.pair_key)]) for run in offline if str(run.pair_key) in partners]
