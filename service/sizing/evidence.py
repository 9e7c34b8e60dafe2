"""Measured runs as evidence: what the stored runs nearest to a question say about the error of the physics.

``answer = physics * exp(shift)``, between ``answer / factor`` and ``answer * factor``. Shift and spread are those of a
Gaussian process (kriging) over the log residuals of stored runs (``neighbourhood.py``). With no run the shift is 0 and
the spread its prior; a run that is added sharpens answers near it and no others.

An ``EvidenceStore`` never changes: adding or removing runs makes another that shares what stays. Answers depend on
which runs are stored, not on the order in which they came, and one question is answered as it is among many.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import log2
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from service.sizing.coverage import unseen_width
from service.sizing.evidence_index import (
    CAMPAIGN,
    COMMONPLACE,
    EMPTY_INDEX,
    NO_NUMBERS,
    OF_GROUPS,
    POOL_SIZE,
    RELEASE,
    Cell,
    Codes,
    Index,
    group,
    spread,
)
from service.sizing.kernel import RATES_KERNEL, TTFT_KERNEL, Array, Kernel
from service.sizing.neighbourhood import PHASE_ALIKE, Neighbourhood, Neighbourhoods, Refinement
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_terms import PHASES, Phase

FIRST = attrgetter("first")
MOST_TIED_CELLS: Final = 1000  # equally alike configurations that are looked at
KEPT_NEIGHBOURHOODS: Final = 256  # some 100 kB each
KEPT_QUESTIONS: Final = 256  # four of them each
ANSWERED: Final = (Phase.SERVING, Phase.TTFT, Phase.SINGLE_STREAM, Phase.PREFILL)  # first those of a closed loop

# Half-widths hold for rows and for whole campaigns of runs: factors by phase and by distance from evidence. Those of
# serving are above what the errors ask for on the whole (`sizing validate prediction` prints both): with less, 0.68 of
# the campaigns that are left out whole would lie inside.
WIDTH_FACTORS: Final[Mapping[Phase, tuple[float, ...]]] = {
    Phase.SERVING: (1.53, 0.89, 1.3, 1.11, 1.65),
    Phase.SINGLE_STREAM: (1.12, 1.09, 1.1, 1.08, 1.15),
    Phase.STATIC_BATCH: (1.15, 2.5, 1.79, 1.37, 1.23),
    Phase.OFFLINE: (1.28, 0.84, 1.06, 1.33, 1.49),
    Phase.PREFILL: (1.87, 1.77, 1.73, 1.05, 2.02),
    Phase.TTFT: (0.7, 0.62, 0.96, 0.8, 0.95),
    Phase.DISAGGREGATED: (1.53, 0.89, 1.3, 1.11, 1.65),  # of serving: its own runs are of few campaigns
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """Configurations whose runs are equally alike to a question's."""

    score: float
    apart: float
    members: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceStore:
    """Stored runs, by configuration: ``EvidenceStore.of(runs)``, ``with_runs``, ``without_runs``.

    Ask it by ``refine``, or ``about`` a configuration for many of its points.
    """

    cells: Mapping[Configuration, Cell]
    index: Index
    run_count: int
    quarantined: frozenset[str]
    kernels: tuple[Kernel, Kernel]
    width_factors: Mapping[Phase, tuple[float, ...]]
    _codes: Codes = field(default_factory=Codes)
    _near: dict[Configuration, Neighbourhood] = field(default_factory=dict)
    _answering: dict[Configuration, Neighbourhoods] = field(default_factory=dict)
    _stored_groups: dict[tuple[str | None, Phase], bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        runs: Iterable[Run] = (),
        *,
        kernels: tuple[Kernel, Kernel] = (RATES_KERNEL, TTFT_KERNEL),
        width_factors: Mapping[Phase, tuple[float, ...]] = WIDTH_FACTORS,
    ) -> "EvidenceStore":
        return cls({}, EMPTY_INDEX, 0, frozenset(), kernels, width_factors).with_runs(runs)

    def with_runs(self, runs: Iterable[Run]) -> "EvidenceStore":
        """Also these; a run whose id is stored already is the same run. Quarantined ones are kept out of answers."""
        grouped: dict[Configuration, list[Run]] = {}
        quarantined = set(self.quarantined)
        for run in runs:
            if run.is_quarantined:
                quarantined.add(run.id)
            else:
                grouped.setdefault(run.configuration, []).append(run)
        return self._changed(
            {key: self._cell(key).with_runs(added) for key, added in grouped.items()},
            frozenset(quarantined),
        )

    def without_runs(self, ids: Iterable[str]) -> "EvidenceStore":
        """As if these had never been added."""
        gone = set(ids)
        held = {key: cell for key, cell in self.cells.items() if not gone.isdisjoint(cell.ids)}
        return self._changed({key: cell.without(gone) for key, cell in held.items()}, self.quarantined - gone)

    def _changed(self, changed: Mapping[Configuration, Cell], quarantined: frozenset[str]) -> "EvidenceStore":
        cells = {**self.cells, **changed}
        added = sum(len(cell.ids) - len(self._cell(key).ids) for key, cell in changed.items())
        return replace(
            self,
            cells=cells,
            index=self.index.changed(changed.values()),
            run_count=self.run_count + added,
            quarantined=quarantined,
            _near={},
            _answering={},
            _stored_groups={},
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
        if (group, phase) not in self._stored_groups:
            cells = (cell for key, cell in self.cells.items() if key.hardware_group == group and cell.ids)
            self._stored_groups[group, phase] = any(alike[cell.phase] for cell in cells)
        wider = 1.0 if self._stored_groups[group, phase] else unseen_width(group, phase)
        return tuple(wider * factor for factor in self.width_factors[phase])

    def _kernel(self, phase: Phase) -> Kernel:
        return self.kernels[phase is Phase.TTFT]

    def _nearest_runs(self, configuration: Configuration) -> list[tuple[Cell, int]]:
        """The ``POOL_SIZE`` runs most alike at no distance, whatever the load that is asked about.

        Ties go by device count, then one run of each point before the second of any, distance from the reference point
        and id. Groups are scored at once; only those that can hold one of the runs are opened.
        """
        entries = sorted(self._entries(configuration), key=lambda each: (-each.score, each.apart))
        chosen: list[tuple[Cell, int]] = []
        for _, tied in groupby(entries, key=lambda each: (each.score, each.apart)):
            cells = sorted((cell for entry in tied for cell in entry.members), key=FIRST)[:MOST_TIED_CELLS]
            runs = spread(run for cell in cells for run in cell.placed)
            chosen.extend((run.cell, run.row) for run in runs[: POOL_SIZE - len(chosen)])
            if len(chosen) == POOL_SIZE:
                break
        return chosen

    def _entries(self, configuration: Configuration) -> list[_Entry]:
        """The best groups, and apart from them each configuration of the release that is asked about.

        A campaign is of one release, so that nothing else sets a group's members apart.
        """
        kernel, index, codes = self._kernel(configuration.phase), self.index, self._codes.of_asked(configuration)
        phase_alike = PHASE_ALIKE[PHASES.index(configuration.phase)]
        own = index.by_release.get(codes[RELEASE], ()) if codes[RELEASE] >= 0 else ()
        own = tuple(cell for cell in own if phase_alike[cell.phase])
        own_rows = [index.rows[group(cell.key)] for cell in own]
        taken, split = {id(cell) for cell in own}, set(own_rows)
        devices_log2 = log2(configuration.device_count)
        entries = []
        rows, scores = self._best_groups(kernel, phase_alike, codes, devices_log2, most=POOL_SIZE + len(split))
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            members = index.members[row]
            if row in split:
                members = tuple(cell for cell in members if id(cell) not in taken)
            entries.append(_Entry(score, abs(float(index.device_log2[row]) - devices_log2), members[:POOL_SIZE]))
        own_scores = self._scores(kernel, phase_alike, codes, np.array(own_rows, dtype=np.int64)).tolist()
        for cell, row, score in zip(own, own_rows, own_scores, strict=True):
            extra = kernel.common[RELEASE] ** 2
            extra += kernel.common[CAMPAIGN] ** 2 * (cell.codes[CAMPAIGN] == codes[CAMPAIGN] >= 0)
            finer = score + float(phase_alike[cell.phase]) * extra + kernel.run**2 * (cell.codes[-1] == codes[-1])
            entries.append(_Entry(finer, abs(float(index.device_log2[row]) - devices_log2), (cell,)))
        return entries

    def _best_groups(
        self, kernel: Kernel, phase_alike: Array, codes: list[int], devices_log2: float, *, most: int
    ) -> tuple[NDArray[np.int64], Array]:
        """So many groups, ties included, that the runs most alike are among theirs; and their scores.

        First those that share something particular with the question. What shares only the accelerator, the model or
        the kind of both scores no more than ``ceiling``: the rest is looked at where too few runs score above it.
        """
        index = self.index
        particular = np.zeros(len(index.members), dtype=bool)
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
            rows = np.arange(len(index.members))
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
