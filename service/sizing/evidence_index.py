"""Stored runs in cells of one configuration, and cells in groups that a question can score at once.

Nothing here is changed in place but ``Codes``, which only ever grows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from math import inf, log2, sqrt
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.sizing.kernel import CODE_COUNT, COMMON, COORDINATE_COUNT, SHARE_COUNT, Array
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_terms import PHASES

POOL_SIZE: Final = 96  # runs that a question leans on at most
REFERENCE_POINT: Final = (log2(32), log2(1024 + 128), log2(1024 + 64))

Names = tuple[Any, ...] | None


def names(configuration: Configuration) -> tuple[Names, ...]:
    """What a configuration may share with another, in the order of the kernel's components; ``None`` is unknown.

    Runs of one campaign that does not state its engine's version are of one version all the same.
    """
    c = configuration
    version = c.engine_version or (f"of {c.campaign}" if c.campaign else None)
    engine, architecture, accelerator, kind, weights = c.engine, c.architecture, c.accelerator, c.kind, c.weight_class
    known, versioned = engine is not None, engine is not None and version is not None
    return (
        (accelerator,),
        (architecture,),
        (accelerator, architecture, engine, weights, version) if versioned else None,
        (c.campaign, architecture, engine, version, accelerator) if c.campaign else None,
        (kind, engine) if known else None,
        (accelerator, kind, engine, weights) if known else None,
        (architecture, engine, weights, c.family) if known else None,
        (architecture, engine) if known else None,
        (kind, engine, weights, c.family) if known else None,
        (architecture, accelerator),
        (accelerator, architecture, engine, version, weights, c.layout, c.device_count, c.is_drafted, c.flags, c.phase)
        if versioned
        else None,
    )


RELEASE, CAMPAIGN = COMMON.index("release"), COMMON.index("campaign")
COMMONPLACE = tuple(COMMON.index(each) for each in ("accelerator", "model", "kind"))  # shared by many configurations
OF_GROUPS = tuple(column for column in range(len(COMMON)) if column not in (RELEASE, CAMPAIGN))

# A run's row of numbers: coordinates, roots of shares, residual, measured seconds, distance from the reference point.
SHARES_AT = COORDINATE_COUNT
RESIDUAL_AT = COORDINATE_COUNT + SHARE_COUNT
MEASURED_AT = RESIDUAL_AT + 1
REFERENCE_AT = MEASURED_AT + 1


def coordinates_of(point: Point, device_count: int) -> tuple[float, float, float, float]:
    return log2(point.batch), log2(point.isl_tokens + 128), log2(point.osl_tokens + 64), log2(device_count)


def numbers_of(run: Run) -> list[float]:
    at = coordinates_of(run.point, run.configuration.device_count)
    reference = sum(abs(here - there) for here, there in zip(at, REFERENCE_POINT, strict=False))
    return [*at, *(sqrt(max(share, 0.0)) for share in run.point.shares), run.log_residual, run.measured_s, reference]


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one configuration, ordered by distance from the reference point, then by id."""

    key: Configuration
    codes: tuple[int, ...]
    ids: tuple[str, ...]
    numbers: Array

    @cached_property
    def phase(self) -> int:
        return PHASES.index(self.key.phase)

    @cached_property
    def first(self) -> tuple[float, str]:
        """Where its runs start in the order of all runs."""
        return float(self.numbers[0, REFERENCE_AT]), self.ids[0]

    @cached_property
    def placed(self) -> "list[Placed]":
        """As many of its runs as a pool can take."""
        ats, distances = self.numbers[:, :COORDINATE_COUNT].tolist(), self.numbers[:, REFERENCE_AT].tolist()
        runs = (
            Placed(distance, run_id, tuple(at), row, self)
            for row, (at, distance, run_id) in enumerate(zip(ats, distances, self.ids, strict=True))
        )
        return spread(runs)[:POOL_SIZE]

    def with_runs(self, runs: Sequence[Run]) -> "Cell":
        known = set(self.ids)
        new = {run.id: numbers_of(run) for run in runs if run.id not in known}
        ids = [*self.ids, *new]
        numbers = np.concatenate([self.numbers, np.array(list(new.values())).reshape(-1, REFERENCE_AT + 1)])
        order = sorted(range(len(ids)), key=lambda row: (numbers[row, REFERENCE_AT], ids[row]))
        return replace(self, ids=tuple(ids[row] for row in order), numbers=numbers[order])

    def without(self, gone: set[str]) -> "Cell":
        kept = [row for row, each in enumerate(self.ids) if each not in gone]
        return replace(self, ids=tuple(self.ids[row] for row in kept), numbers=self.numbers[kept])


NO_NUMBERS = np.empty((0, REFERENCE_AT + 1))


class Placed(NamedTuple):
    """A run where the order of a pool has it."""

    reference_distance: float
    run_id: str
    point: tuple[float, ...]
    row: int
    cell: Cell


def spread(runs: Iterable[Placed]) -> list[Placed]:
    """One run of each point, then the second of each, by distance from the reference point and id.

    So repeats of some points, which a nightly test makes, keep no other point out of a pool.
    """
    repeats: dict[tuple[float, ...], int] = {}
    ranked = []
    for run in sorted(runs, key=itemgetter(0, 1)):
        repeats[run.point] = repeats.get(run.point, -1) + 1
        ranked.append((repeats[run.point], run.reference_distance, run.run_id, run))
    return [run for *_, run in sorted(ranked, key=itemgetter(0, 1, 2))]


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Groups of configurations that differ only in release, layout and campaign: what a question scores first.

    ``codes`` has a line for each thing in common; of those that differ within a group only the first member's stand
    there, and they are not used. ``members`` are in the order of their first runs, ``nearest`` is the reference
    distance of the very first, infinite for a group without runs. ``by_release`` has all cells of a release.
    """

    rows: Mapping[tuple[object, ...], int]
    members: tuple[tuple[Cell, ...], ...]
    by_release: Mapping[int, tuple[Cell, ...]]
    codes: NDArray[np.int32]
    phases: NDArray[np.int64]
    device_log2: Array
    nearest: Array
    run_counts: NDArray[np.int64]

    def changed(self, cells: Iterable[Cell]) -> "Index":
        """With these in place of the cells of the same configuration, new groups at the end."""
        rows, members, by_release = dict(self.rows), list(self.members), dict(self.by_release)
        fresh: list[Cell] = []
        touched: dict[int, dict[Configuration, Cell]] = {}
        released: dict[int, dict[Configuration, Cell]] = {}
        for cell in cells:
            row = rows.setdefault(group(cell.key), len(members))
            if row == len(members):
                members.append(())
                fresh.append(cell)
            if row not in touched:
                touched[row] = {each.key: each for each in members[row]}
            touched[row][cell.key] = cell
            release = cell.codes[RELEASE]
            if release not in released:
                released[release] = {each.key: each for each in by_release.get(release, ())}
            released[release][cell.key] = cell
        nearest = np.concatenate([self.nearest, np.full(len(fresh), inf)])
        run_counts = np.concatenate([self.run_counts, np.zeros(len(fresh), dtype=np.int64)])
        for row, own in touched.items():
            members[row] = tuple(sorted((each for each in own.values() if each.ids), key=lambda each: each.first))
            nearest[row] = members[row][0].first[0] if members[row] else inf
            run_counts[row] = sum(len(each.ids) for each in members[row])
        by_release.update({code: tuple(each for each in own.values() if each.ids) for code, own in released.items()})
        return Index(
            rows,
            tuple(members),
            by_release,
            np.concatenate(
                [self.codes, np.array([cell.codes for cell in fresh], dtype=np.int32).reshape(-1, CODE_COUNT).T], 1
            ),
            np.concatenate([self.phases, np.array([cell.phase for cell in fresh], dtype=np.int64)]),
            np.concatenate([self.device_log2, [log2(cell.key.device_count) for cell in fresh]]),
            nearest,
            run_counts,
        )


NO_COUNTS = np.empty(0, dtype=np.int64)
EMPTY_INDEX = Index(
    {}, (), {}, np.empty((CODE_COUNT, 0), dtype=np.int32), NO_COUNTS, np.empty(0), np.empty(0), NO_COUNTS
)


def group(key: Configuration) -> tuple[object, ...]:
    return (
        key.phase,
        key.accelerator,
        key.architecture,
        key.engine,
        key.weight_class,
        key.kind,
        key.family,
        key.device_count,
    )


class Codes:
    """Integers for names, shared by a store and all that are made from it. Only their equality means anything."""

    def __init__(self) -> None:
        self._codes: dict[tuple[int, Names], int] = {}
        self._next = count()

    def of_stored(self, configuration: Configuration) -> list[int]:
        """In the order of the kernel's components; unknown is negative."""
        return [
            -1 if name is None else self._codes.setdefault((column, name), next(self._next))
            for column, name in enumerate(names(configuration))
        ]

    def of_asked(self, configuration: Configuration) -> list[int]:
        """The same of a question: what no stored run has is as good as unknown, and is not kept."""
        return [self._codes.get((column, name), -1) for column, name in enumerate(names(configuration))]
