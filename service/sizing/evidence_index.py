"""Stored runs in cells of one configuration, and cells in groups that a question can score at once.

Nothing here is changed in place but ``Codes``, which only ever grows.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf, log2, sqrt
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.sizing.kernel import CODE_COUNT, COMMON, COORDINATE_COUNT, SHARE_COUNT, Array
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_shelf import Shelf, Spot, shelved
from service.sizing.run_terms import PHASES
from service.sizing.shared_map import SharedMap

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


RELEASE, CAMPAIGN, CONFIGURATION = COMMON.index("release"), COMMON.index("campaign"), len(COMMON)
WHOLE: Final = -1
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


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The runs of one configuration, in the order of a shelf."""

    key: Configuration
    codes: tuple[int, ...]
    spots: tuple[Spot, ...]
    numbers: Array

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(spot.run_id for spot in self.spots)

    @property
    def phase(self) -> int:
        return PHASES.index(self.key.phase)

    def row_of(self, spot: Spot) -> int:
        return bisect_left(self.spots, spot)

    def with_runs(self, runs: Sequence[Run]) -> "Cell":
        added = np.array([numbers_of(run) for run in runs])
        spots = [*self.spots, *(_spot(run.id, line) for run, line in zip(runs, added, strict=True))]
        numbers = np.concatenate([self.numbers, added])
        order = sorted(range(len(spots)), key=spots.__getitem__)
        return replace(self, spots=tuple(spots[row] for row in order), numbers=numbers[order])

    def without(self, gone: Collection[str]) -> "Cell":
        kept = [row for row, spot in enumerate(self.spots) if spot.run_id not in gone]
        return replace(self, spots=tuple(self.spots[row] for row in kept), numbers=self.numbers[kept])


NO_NUMBERS = np.empty((0, REFERENCE_AT + 1))


def _spot(run_id: str, numbers: Array) -> Spot:
    return Spot(float(numbers[REFERENCE_AT]), numbers[:COORDINATE_COUNT].tobytes(), run_id)


class CellChange(NamedTuple):
    before: Cell
    after: Cell

    @property
    def gone(self) -> set[Spot]:
        return set(self.before.spots).difference(self.after.spots)

    @property
    def new(self) -> set[Spot]:
        return set(self.after.spots).difference(self.before.spots)


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Groups of configurations that differ only in release, layout, flags and campaign: what a question scores first.

    ``codes`` has a line for each thing in common; of those that differ within a group only the first configuration's
    stand there, and they are not used. ``shelves`` are by a group's row and a code: all runs of the group (``WHOLE``),
    those of a release, those of a configuration whoever measured. ``nearest`` is the reference distance of a group's
    first run, infinite without runs.
    """

    rows: SharedMap[tuple[object, ...], int]
    shelves: SharedMap[tuple[int, int], Shelf]
    rows_of_release: SharedMap[int, tuple[int, ...]]
    codes: NDArray[np.int32]
    phases: NDArray[np.int64]
    device_log2: Array
    nearest: Array
    run_counts: NDArray[np.int64]

    def changed(self, changes: Iterable[CellChange]) -> "Index":
        """With the runs of these cells as they are after; new groups at the end."""
        rows: dict[tuple[object, ...], int] = {}
        shelves: dict[tuple[int, int], Shelf] = {}
        rows_of_release: dict[int, tuple[int, ...]] = {}
        fresh: list[Cell] = []
        for change in changes:
            cell, gone, new = change.after, change.gone, change.new
            name = group(cell.key)
            row = rows.setdefault(name, self._row(name, otherwise=len(self.phases) + len(fresh)))
            if row == len(self.phases) + len(fresh):
                fresh.append(cell)
            release, configuration = cell.codes[RELEASE], cell.codes[CONFIGURATION]
            for key in {(row, WHOLE), (row, release), (row, configuration)}:  # what is unknown is nobody's own
                shelf = shelves[key] if key in shelves else self.shelves.get(key) or ()
                shelves[key] = shelved(shelf, gone=gone, new=new)
            known = rows_of_release.get(release) or self.rows_of_release.get(release) or ()
            if release >= 0 and row not in known:
                rows_of_release[release] = (*known, row)
        touched = list(rows.values())
        grown = self._grown(fresh)
        grown.nearest[touched] = [shelves[row, WHOLE][0][0] if shelves[row, WHOLE] else inf for row in touched]
        grown.run_counts[touched] = [len(shelves[row, WHOLE]) for row in touched]
        return replace(
            grown,
            rows=self.rows.changed(rows),
            shelves=self.shelves.changed({key: shelf or None for key, shelf in shelves.items()}),
            rows_of_release=self.rows_of_release.changed(rows_of_release),
        )

    def _row(self, name: tuple[object, ...], *, otherwise: int) -> int:
        known = self.rows.get(name)
        return otherwise if known is None else known

    def _grown(self, fresh: Sequence[Cell]) -> "Index":
        """With lines for these groups. The two columns that every change writes to are copies."""
        grown = replace(
            self,
            nearest=np.concatenate([self.nearest, np.full(len(fresh), inf)]),
            run_counts=np.concatenate([self.run_counts, np.zeros(len(fresh), dtype=np.int64)]),
        )
        if not fresh:
            return grown
        return replace(
            grown,
            codes=np.concatenate([self.codes, np.array([cell.codes for cell in fresh], dtype=np.int32).T], 1),
            phases=np.concatenate([self.phases, np.array([cell.phase for cell in fresh], dtype=np.int64)]),
            device_log2=np.concatenate([self.device_log2, [log2(cell.key.device_count) for cell in fresh]]),
        )


NO_COUNTS = np.empty(0, dtype=np.int64)
EMPTY_INDEX = Index(
    SharedMap(),
    SharedMap(),
    SharedMap(),
    np.empty((CODE_COUNT, 0), dtype=np.int32),
    NO_COUNTS,
    np.empty(0),
    np.empty(0),
    NO_COUNTS,
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
