"""Finding runs among a million as fast as among ten thousand: by index, page by key, counts that are kept.

SQLite keeps no statistics of single values: it cannot know whether few or most runs match a filter. Postgres takes the
values of different columns as independent: of all Offline runs in the closed division it expects next to none, and
reads and sorts them all for a page. So the index that a list is read by is chosen here (``best_index``) and named to
SQLite; from Postgres the conditions on other columns are hidden (``_hidden``), which leaves it no better one.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    ScalarSelect,
    Select,
    case,
    func,
    literal,
    select,
    tuple_,
)
from sqlmodel import Session

from service.catalogue.benchmark_records import BenchmarkRun
from service.catalogue.benchmarks import COLUMNS, FACET_COUNTS, RUNS, evidence_revision, run_of
from service.catalogue.tables import RUN_FACETS, RUN_FIGURES, RUN_KEYS

ROWS_AT_ONCE = 2000
FEW_RUNS = 2000  # are read and sorted in a few milliseconds, whatever else is asked of them
MOST_FACET_VALUES = 200
MOST_KEPT_FACETS = 2000
MOST_WHOLE = 2**62  # beyond every count, and within the database's whole numbers
INDEXES = {name: f"ix_benchmark_run_{name}" for name in RUN_KEYS} | {"content_digest": "uq_benchmark_run_content"}
BY_ACCELERATOR_AND_MODEL = "ix_benchmark_run_accelerator_model"
IN_ORDER_OF_ID = "sqlite_autoindex_benchmark_run_1"
COLUMNS_OF = {IN_ORDER_OF_ID: {"id"}} | {str(index.name): set(index.columns.keys()) for index in RUNS.indexes}

Value = str | int | float | bool
Columns = Sequence[ColumnElement[Any]]
After = Sequence[Value] | None


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends included; ``None`` leaves an end open. A run without the figure is in no range."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """By column. ``any_of`` holds where the value is one of those."""

    any_of: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def by_column(self) -> dict[str, list[ColumnElement[bool]]]:
        found: dict[str, list[ColumnElement[bool]]] = {}
        for name, values in self.any_of.items():
            found[name] = [RUNS.c[name] == values[0] if len(values) == 1 else RUNS.c[name].in_(values)]
        for name, span in self.ranges.items():
            ends = found.setdefault(name, [])
            if span.low is not None:
                ends.append(RUNS.c[name] >= _bound(name, math.ceil, span.low))
            if span.high is not None:
                ends.append(RUNS.c[name] <= _bound(name, math.floor, span.high))
        return found

    def single_values(self) -> dict[str, Value]:
        """The indexed columns of which one value is wanted, and which."""
        return {name: values[0] for name, values in self.any_of.items() if len(values) == 1 and name in INDEXES}

    def several_values(self) -> str | None:
        """An indexed column of which one of several values is wanted."""
        return next((name for name, values in self.any_of.items() if len(values) > 1 and name in INDEXES), None)


def _bound(column: str, rounded: Callable[[float], int], value: float) -> Any:
    """Of a column of whole numbers a whole number: Postgres uses no index of them for another."""
    if not isinstance(RUNS.c[column].type, Integer):
        return value
    return literal(min(rounded(value), MOST_WHOLE), BigInteger)


@dataclass(frozen=True, slots=True)
class Order:
    """By a column and, among equals, by id. Runs that do not have the column's figure are not in the list."""

    column: str = "id"
    descending: bool = False

    def key(self, run: BenchmarkRun) -> tuple[Value, ...]:
        return (run.id,) if self.column == "id" else (getattr(run, self.column), run.id)


NEWEST_FIRST = Order("id", descending=True)


def list_runs(
    session: Session, wanted: RunFilter, order: Order, *, limit: int, after: After = None
) -> list[BenchmarkRun]:
    """The next ``limit`` runs after the key of the last one."""
    return [run_of(row) for row in rows_of(session.connection(), COLUMNS, wanted, order, limit=limit, after=after)]


def rows_of(
    connection: Connection, columns: Columns, wanted: RunFilter, order: Order, *, limit: int, after: After = None
) -> list[Row[Any]]:
    """The next rows of these columns, the id among them."""
    index = best_index(connection, wanted, order)
    if index is not None:
        return list(connection.execute(read_by(index, columns, wanted, order, limit=limit, after=after)))
    name = str(wanted.several_values())  # an index has the order of id within one value only
    parts = [replace(wanted, any_of={**wanted.any_of, name: [value]}) for value in dict.fromkeys(wanted.any_of[name])]
    queries = [read_by(INDEXES[name], columns, part, order, limit=limit, after=after) for part in parts]
    found = [row for query in queries for row in connection.execute(query)]
    return sorted(found, key=lambda row: str(row.id), reverse=order.descending)[:limit]


def read_by(
    index: str, columns: Columns, wanted: RunFilter, order: Order, *, limit: int, after: After = None
) -> Select[Any]:
    keys = [RUNS.c.id] if order.column == "id" else [RUNS.c[order.column], RUNS.c.id]
    query = _hinted(index, select(*columns))
    for name, conditions in wanted.by_column().items():
        query = query.where(*(conditions if name in COLUMNS_OF[index] else map(_hidden, conditions)))
    if len(keys) > 1:
        query = query.where(keys[0].is_not(None))
    if after is not None:
        position, last = tuple_(*keys), tuple(after)
        query = query.where(position < last if order.descending else position > last)
    return query.order_by(*(key.desc() if order.descending else key for key in keys)).limit(limit)


def best_index(connection: Connection, wanted: RunFilter, order: Order) -> str | None:
    """The index to read by: of a condition that few runs meet, else one that has the order of the list.

    ``None`` where no single one has it.
    """
    if served := _served(wanted):
        counts = [_count_to_few(index, some) for index, some in served.items()]
        fewest, index = min(zip(connection.execute(select(*counts)).one(), served, strict=True))
        if fewest <= FEW_RUNS:
            return index
    single = wanted.single_values()
    if order.column != "id":
        by_scenario = "scenario" in single and order.column in RUN_FIGURES
        return f"ix_benchmark_run_scenario_{order.column}" if by_scenario else INDEXES[order.column]
    if {"accelerator", "model"} <= single.keys():
        return BY_ACCELERATOR_AND_MODEL
    if single:
        return INDEXES[_least_frequent(connection, single)]
    return None if wanted.several_values() else IN_ORDER_OF_ID


def _served(wanted: RunFilter) -> dict[str, list[ColumnElement[bool]]]:
    """The conditions that an index serves, by its name."""
    conditions = wanted.by_column()
    found = {INDEXES[name]: some for name, some in conditions.items() if name in INDEXES}
    single = wanted.single_values()
    if {"accelerator", "model"} <= single.keys():
        parts = takewhile(single.__contains__, ("accelerator", "model", "weights", "scenario"))
        found["ix_benchmark_run_configuration"] = [each for name in parts for each in conditions[name]]
    return found


def _count_to_few(index: str, conditions: Sequence[ColumnElement[bool]]) -> ScalarSelect[int]:
    """How many runs meet them, counted no further than to one more than few."""
    some = _hinted(index, select(RUNS.c.id)).where(*conditions).limit(FEW_RUNS + 1).subquery()
    return select(func.count()).select_from(some).scalar_subquery()


def _least_frequent(connection: Connection, single: Mapping[str, Value]) -> str:
    """By the kept counts; a column that has none is taken last."""
    if len(single) == 1:
        return next(iter(single))
    counts = {name: kept_count(connection, name, value) for name, value in single.items() if name in RUN_FACETS}
    return min(single, key=lambda name: counts.get(name, math.inf))


def kept_count(connection: Connection, facet: str, value: Value) -> int:
    """How many runs there are with this value of a column that facets are asked of."""
    kept = FACET_COUNTS.c
    query = select(kept.run_count).where(kept.facet == facet, kept.value == json.dumps(value))
    return connection.execute(query).scalar() or 0


def _hinted(index: str, query: Select[Any]) -> Select[Any]:
    return query.with_hint(RUNS, f"INDEXED BY {index}", "sqlite")


def _hidden(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The same condition, of which Postgres has neither an index nor statistics: it expects it of half of the runs.

    SQLite reads by the index that is named to it either way.
    """
    return case((condition, True), else_=False)


def every_run(session: Session, wanted: RunFilter, order: Order) -> Iterator[list[BenchmarkRun]]:
    """All of them, a bounded number at once, each part a statement of its own: a slow reader blocks no writer."""
    after: After = None
    while True:
        some = list_runs(session, wanted, order, limit=ROWS_AT_ONCE, after=after)
        session.rollback()
        if some:
            yield some
        if len(some) < ROWS_AT_ONCE:
            return
        after = order.key(some[-1])


@dataclass(frozen=True, slots=True)
class Facets:
    """By column, how many of ``counted_run_count`` runs have each value, the most frequent first.

    ``is_complete`` is false where more runs match than are counted: then these are the newest.
    """

    counted_run_count: int
    is_complete: bool
    counts: Mapping[str, Sequence[tuple[Value | None, int]]]


def facets(session: Session, wanted: RunFilter, columns: Sequence[str]) -> Facets:
    """Of all runs from the counts that each write keeps; of a part of them from the newest ``FEW_RUNS``.

    To count all that match takes as long as they are many, and no index makes it less.
    """
    connection = session.connection()
    if wanted == RunFilter():
        counts = {name: _kept_counts(connection, name) for name in columns}
        run_count = sum(count for _, count in _kept_counts(connection, "calibrates"))
        return Facets(run_count, is_complete=True, counts=counts)
    own = [RUNS.c[name] for name in columns]
    rows = rows_of(connection, [*own, RUNS.c.id], wanted, NEWEST_FIRST, limit=FEW_RUNS + 1)
    counted = rows[:FEW_RUNS]
    most = {name: _most_frequent(Counter(row[place] for row in counted).items()) for place, name in enumerate(columns)}
    return Facets(len(counted), is_complete=len(rows) <= FEW_RUNS, counts=most)


def _kept_counts(connection: Connection, column: str) -> list[tuple[Value | None, int]]:
    kept = FACET_COUNTS.c
    query = (
        select(kept.value, kept.run_count)
        .where(kept.facet == column)
        .order_by(kept.run_count.desc(), kept.value.desc())
        .limit(MOST_FACET_VALUES)
    )
    return _most_frequent((json.loads(row[0]), row[1]) for row in connection.execute(query))


def _most_frequent(counts: Iterable[tuple[Any, int]]) -> list[tuple[Value | None, int]]:
    """Among equals by value, and those that do not say last."""
    ordered = sorted(counts, key=lambda each: (-each[1], each[0] is None, each[0]))
    return ordered[:MOST_FACET_VALUES]


class FacetCounts:
    """Counts that are kept until the next write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revision = -1
        self._kept: dict[str, Facets] = {}

    def of(self, session: Session, wanted: RunFilter, columns: Sequence[str]) -> Facets:
        """As ``facets``."""
        revision = evidence_revision(session.connection())
        key = repr((wanted, columns))
        with self._lock:
            if revision != self._revision or len(self._kept) >= MOST_KEPT_FACETS:
                self._revision, self._kept = revision, {}
            if (kept := self._kept.get(key)) is not None:
                return kept
        counted = facets(session, wanted, columns)
        with self._lock:
            if revision == self._revision:
                self._kept[key] = counted
        return counted
