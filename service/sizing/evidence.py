"""Measured runs as evidence: what the stored runs nearest to a question say about the error of the physics.

``answer = physics * exp(shift)``, between ``answer / factor`` and ``answer * factor``. Shift and spread are those of a
Gaussian process (kriging) over the log residuals of stored runs (``neighbourhood.py``). With no run the shift is 0 and
the spread its prior; a run that is added sharpens answers near it and no others.

An ``EvidenceStore`` never changes: adding or removing runs makes another that shares what stays. Answers depend on
which runs are stored, not on the order in which they came, and one question is answered as it is among many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, groupby, islice
from math import log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from service.sizing.coverage import unseen_width
from service.sizing.evidence_index import (
    COMMONPLACE,
    CONFIGURATION,
    EMPTY_INDEX,
    NO_NUMBERS,
    OF_GROUPS,
    POOL_SIZE,
    RELEASE,
    WHOLE,
    Cell,
    CellChange,
    Codes,
    Index,
)
from service.sizing.kernel import RATES_KERNEL, TTFT_KERNEL, Array, Kernel
from service.sizing.neighbourhood import PHASE_ALIKE, Neighbourhood, Neighbourhoods, Refinement
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_shelf import Spot, in_turn
from service.sizing.run_terms import PHASES, Phase
from service.sizing.shared_map import SharedMap

KERNELS: Final = (RATES_KERNEL, TTFT_KERNEL)
KEPT_NEIGHBOURHOODS: Final = 256  # some 100 kB each
KEPT_QUESTIONS: Final = 256  # four of them each
ANSWERED: Final = (Phase.SERVING, Phase.TTFT, Phase.SINGLE_STREAM, Phase.PREFILL)  # first those of a closed loop

# Half-widths hold for rows and for whole campaigns of runs: factors by phase and by distance from evidence, as
# `sizing validate prediction` asks for them. No interval is narrower farther from evidence.
_SERVING: Final = (0.78, 0.78, 1.06, 1.06, 1.3)
WIDTH_FACTORS: Final[Mapping[Phase, tuple[float, ...]]] = {
    Phase.SERVING: _SERVING,
    Phase.SINGLE_STREAM: (0.98, 0.98, 0.98, 0.98, 1.17),
    Phase.STATIC_BATCH: (1.2, 1.33, 1.33, 1.33, 1.33),
    Phase.OFFLINE: (0.9, 0.9, 1.01, 1.37, 1.43),
    Phase.PREFILL: (1.28, 1.28, 1.28, 1.28, 2.06),
    Phase.TTFT: (0.63, 0.63, 0.84, 0.84, 0.91),
    Phase.DISAGGREGATED: _SERVING,  # its own runs are of few campaigns
}


@cache
def sd_without_runs(hardware_group: str | None, phase: Phase) -> float:
    """Spread of ln(measured / predicted) while no run at all is stored: what an empty store answers."""
    return KERNELS[phase is Phase.TTFT].prior_sd * unseen_width(hardware_group, phase) * WIDTH_FACTORS[phase][-1]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Runs that are equally alike to a question's, to be taken in turn. ``apart`` is between the device counts."""

    score: float
    apart: float
    runs: Iterator[Spot]


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceStore:
    """Stored runs, by configuration: ``EvidenceStore.of(runs)``, ``with_runs``, ``without_runs``.

    Ask it by ``refine``, or ``about`` a configuration for many of its points. ``run_counts`` are by hardware group and
    phase.
    """

    cells: SharedMap[Configuration, Cell]
    configurations: SharedMap[str, Configuration]
    index: Index
    run_counts: Mapping[tuple[str | None, Phase], int]
    kernels: tuple[Kernel, Kernel]
    width_factors: Mapping[Phase, tuple[float, ...]]
    _codes: Codes = field(default_factory=Codes)
    _near: dict[Configuration, Neighbourhood] = field(default_factory=dict)
    _answering: dict[Configuration, Neighbourhoods] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        runs: Iterable[Run] = (),
        *,
        kernels: tuple[Kernel, Kernel] = KERNELS,
        width_factors: Mapping[Phase, tuple[float, ...]] = WIDTH_FACTORS,
    ) -> "EvidenceStore":
        return cls(SharedMap(), SharedMap(), EMPTY_INDEX, {}, kernels, width_factors).with_runs(runs)

    @property
    def run_count(self) -> int:
        return sum(self.run_counts.values())

    def with_runs(self, runs: Iterable[Run]) -> "EvidenceStore":
        """Also these; a run whose id is stored already is the same run. Quarantined ones are kept out of answers."""
        new = {run.id: run for run in runs if not run.is_quarantined and run.id not in self.configurations}
        grouped: dict[Configuration, list[Run]] = {}
        for run in new.values():
            grouped.setdefault(run.configuration, []).append(run)
        cells = ((self._cell(key), added) for key, added in grouped.items())
        return self._changed(
            [CellChange(cell, cell.with_runs(added)) for cell, added in cells],
            {run.id: run.configuration for run in new.values()},
        )

    def without_runs(self, ids: Iterable[str]) -> "EvidenceStore":
        """As if these had never been added. Takes as long as they are many, among however many others."""
        grouped: dict[Configuration, set[str]] = {}
        for run_id in ids:
            if key := self.configurations.get(run_id):
                grouped.setdefault(key, set()).add(run_id)
        cells = ((self.cells[key], gone) for key, gone in grouped.items())
        return self._changed(
            [CellChange(cell, cell.without(gone)) for cell, gone in cells],
            dict.fromkeys(run_id for gone in grouped.values() for run_id in gone),
        )

    def _changed(
        self, changes: Sequence[CellChange], configurations: Mapping[str, Configuration | None]
    ) -> "EvidenceStore":
        run_counts = dict(self.run_counts)
        for before, after in changes:
            kind = after.key.hardware_group, after.key.phase
            run_counts[kind] = run_counts.get(kind, 0) + len(after.spots) - len(before.spots)
        return replace(
            self,
            cells=self.cells.changed({after.key: after if after.spots else None for _, after in changes}),
            configurations=self.configurations.changed(configurations),
            index=self.index.changed(changes),
            run_counts=run_counts,
            _near={},
            _answering={},
        )

    def _cell(self, key: Configuration) -> Cell:
        return self.cells.get(key) or Cell(key, tuple(self._codes.of_stored(key)), (), NO_NUMBERS)

    def refine(self, configuration: Configuration, point: Point) -> Refinement:
        """What the stored runs say about one predicted time."""
        return self.about(configuration).at(point)

    def about(self, configuration: Configuration) -> Neighbourhood:
        """The runs that answer its questions. Kept by configuration; threads that miss at once find the same."""
        kept = self._near.get(configuration)
        if kept is not None:
            return kept
        if len(self._near) >= KEPT_NEIGHBOURHOODS:
            self._near.clear()
        found = self._near[configuration] = self._neighbourhood(configuration)
        return found

    def answering(self, configuration: Configuration) -> Neighbourhoods:
        """Of all the phases that an answer about it consists of, in the order of ``ANSWERED``."""
        kept = self._answering.get(configuration)
        if kept is not None:
            return kept
        if len(self._answering) >= KEPT_QUESTIONS:
            self._answering.clear()
        members = [self._neighbourhood(replace(configuration, phase=phase)) for phase in ANSWERED]
        found = self._answering[configuration] = Neighbourhoods.of(members)
        return found

    def _neighbourhood(self, configuration: Configuration) -> Neighbourhood:
        return Neighbourhood.of(
            configuration,
            self._codes.of_asked(configuration),
            self._nearest_runs(configuration),
            kernel=self._kernel(configuration.phase),
            width_factors=self._width_factors(configuration),
        )

    def _width_factors(self, configuration: Configuration) -> tuple[float, ...]:
        """Wider while no run of the hardware group is stored."""
        phase, group = configuration.phase, configuration.hardware_group
        alike = PHASE_ALIKE[PHASES.index(phase)]
        is_seen = any(alike[row] and self.run_counts.get((group, other)) for row, other in enumerate(PHASES))
        wider = 1.0 if is_seen else unseen_width(group, phase)
        return tuple(wider * factor for factor in self.width_factors[phase])

    def _kernel(self, phase: Phase) -> Kernel:
        return self.kernels[phase is Phase.TTFT]

    def _nearest_runs(self, configuration: Configuration) -> list[tuple[Cell, int]]:
        """The ``POOL_SIZE`` runs most alike at no distance, whatever the load that is asked about.

        Ties go by device count, then in turn (``run_shelf.py``). Groups are scored at once; only those that can hold
        one of the runs are opened.
        """
        entries = sorted(self._entries(configuration), key=lambda each: (-each.score, each.apart))
        chosen: list[Spot] = []
        for _, tied in groupby(entries, key=lambda each: (each.score, each.apart)):
            most = POOL_SIZE - len(chosen)
            runs = sorted(chain.from_iterable(islice(entry.runs, most) for entry in tied))
            chosen.extend(islice(in_turn(runs), most))
            if len(chosen) == POOL_SIZE:
                break
        cells = [(self._cell_of(spot), spot) for spot in chosen]
        return [(cell, cell.row_of(spot)) for cell, spot in cells]

    def _cell_of(self, spot: Spot) -> Cell:
        return self.cells[self.configurations[spot.run_id]]

    def _entries(self, configuration: Configuration) -> list[_Entry]:
        """The best groups, and apart from them the runs of the release, and of the configuration, that is asked about.

        A campaign is of one release and a question of none, so that nothing else sets a group's runs apart.
        """
        kernel, index, codes = self._kernel(configuration.phase), self.index, self._codes.of_asked(configuration)
        phase_alike = PHASE_ALIKE[PHASES.index(configuration.phase)]
        release, same = codes[RELEASE], codes[CONFIGURATION]
        own = [row for row in index.rows_of_release.get(release) or () if phase_alike[index.phases[row]]]
        devices_log2 = log2(configuration.device_count)

        def entry(row: int, score: float, runs: Iterator[Spot]) -> _Entry:
            return _Entry(score, abs(float(index.device_log2[row]) - devices_log2), runs)

        rows, scores = self._best_groups(kernel, phase_alike, codes, devices_log2, most=POOL_SIZE + len(own))
        entries = [
            entry(row, score, self._runs(row, WHOLE, but=(RELEASE, release) if row in own else None))
            for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
        ]
        own_scores = self._scores(kernel, phase_alike, codes, np.array(own, dtype=np.int64)).tolist()
        for row, score in zip(own, own_scores, strict=True):
            finer = score + float(phase_alike[index.phases[row]]) * kernel.common[RELEASE] ** 2
            entries.append(entry(row, finer, self._runs(row, release, but=(CONFIGURATION, same))))
            if same >= 0:
                entries.append(entry(row, finer + kernel.run**2, self._runs(row, same)))
        return entries

    def _runs(self, row: int, code: int, *, but: tuple[int, int] | None = None) -> Iterator[Spot]:
        """Of a shelf, in turn, without those of a code."""
        shelf = self.index.shelves.get((row, code)) or ()
        if but is None:
            return in_turn(shelf)
        column, unwanted = but
        return in_turn(shelf, lambda spot: self._cell_of(spot).codes[column] != unwanted)

    def _best_groups(
        self, kernel: Kernel, phase_alike: Array, codes: list[int], devices_log2: float, *, most: int
    ) -> tuple[NDArray[np.int64], Array]:
        """So many groups, ties included, that the runs most alike are among theirs; and their scores.

        First those that share something particular with the question. What shares only the accelerator, the model or
        the kind of both scores no more than ``ceiling``: the rest is looked at where too few runs score above it.
        """
        index = self.index
        particular = np.zeros(len(index.phases), dtype=bool)
        ceiling = kernel.regime**2
        for column in OF_GROUPS:
            if column in COMMONPLACE:
                ceiling += kernel.common[column] ** 2
            elif kernel.common[column] and codes[column] >= 0:
                particular |= index.codes[column] == codes[column]
        rows = np.flatnonzero(particular)
        scores = self._scores(kernel, phase_alike, codes, rows)
        above = scores > ceiling
        if int(index.run_counts[rows[above]].sum()) >= POOL_SIZE + most:
            rows, scores = rows[above], scores[above]
        else:
            rows = np.arange(len(index.phases))
            scores = self._scores(kernel, phase_alike, codes, rows)
        usable = (scores > 0) & (index.run_counts[rows] > 0)
        rows, scores = rows[usable], scores[usable]
        if len(rows) > most:
            apart = np.abs(index.device_log2[rows] - devices_log2)
            rank = scores - 1e-9 * np.minimum(apart, 10.0) - 1e-12 * np.minimum(index.nearest[rows], 100.0)
            best = rank >= np.partition(rank, -most)[-most]
            rows, scores = rows[best], scores[best]
        return rows, scores

    def _scores(self, kernel: Kernel, phase_alike: Array, codes: list[int], rows: NDArray[np.int64]) -> Array:
        """Prior covariance with a run of each of these groups at no distance, without what sets its members apart."""
        index = self.index
        scores = np.full(len(rows), kernel.regime**2)
        for column in OF_GROUPS:
            if kernel.common[column] and codes[column] >= 0:
                scores += (index.codes[column][rows] == codes[column]) * kernel.common[column] ** 2
        scores *= phase_alike[index.phases[rows]]
        return scores
