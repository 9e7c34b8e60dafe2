"""Measured runs as evidence: what the stored runs nearest to a question say about the error of the physics.

``answer = physics * exp(shift)``, between ``answer / factor`` and ``answer * factor``. Shift and spread are those of a
Gaussian process (kriging) over the log residuals of stored runs. With no run the shift is 0 and the spread its
prior; a run that is added sharpens answers near it and no others.

An ``EvidenceStore`` never changes: adding or removing runs makes another that shares what stays. Answers depend on
which runs are stored, not on the order in which they came, and one question is answered as it is among many.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby, islice
from math import exp, inf, log2, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from service.sizing.estimate import Basis
from service.sizing.evidence_index import (
    CAMPAIGN,
    EMPTY_INDEX,
    NO_NUMBERS,
    OF_GROUPS,
    POOL_SIZE,
    RELEASE,
    RESIDUAL_AT,
    SHARES_AT,
    Cell,
    Codes,
    Index,
    coordinates_of,
    group,
)
from service.sizing.kernel import (
    CODE_COUNT,
    COORDINATE_COUNT,
    RATES_KERNEL,
    TTFT_KERNEL,
    Array,
    Kernel,
    Runs,
    covariance,
)
from service.sizing.parameters import NORMAL_QUANTILE_90
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_terms import PHASES, Phase

KEPT_POOLS: Final = 4096
OUTLIER_SD, MOST_NOISE = 2.0, 400.0
LEANS_ON: Final = 5
FARTHEST_CALIBRATED: Final = 0.95  # beyond, the evidence says next to nothing

# P: 1 within a phase, half between two phases of decode.
PHASE_ALIKE: Final = np.array(
    [[1.0 if one is two else 0.5 * (one.is_decode and two.is_decode) for two in PHASES] for one in PHASES]
)

# Half-widths hold for rows and for whole campaigns of runs: factors by phase and by distance from evidence.
DISTANCE_BINS: Final = (0.25, 0.40, 0.55, 0.70)
WIDTH_FACTORS: Final[Mapping[Phase, tuple[float, ...]]] = {
    Phase.SERVING: (1.53, 0.89, 1.3, 1.11, 1.65),
    Phase.SINGLE_STREAM: (1.21, 1.12, 1.54, 1.09, 1.35),
    Phase.STATIC_BATCH: (1.14, 2.5, 1.82, 1.37, 1.23),
    Phase.OFFLINE: (1.28, 0.84, 1.06, 1.33, 1.49),
    Phase.PREFILL: (2.5, 2.5, 2.5, 1.42, 2.5),
    Phase.TTFT: (1.01, 0.8, 1.7, 1.04, 1.31),
}


@dataclass(frozen=True, slots=True)
class Lean:
    """A run that an answer leans on, and the weight of its residual in the shift."""

    run: str
    weight: float


@dataclass(frozen=True, slots=True)
class Refinement:
    """What evidence does to a predicted time. ``distance`` runs from 0 (measured) to 1 (nothing near)."""

    shift: float
    sd: float
    distance: float
    basis: Basis
    leans_on: tuple[Lean, ...]

    @property
    def ratio(self) -> float:
        """Multiplies the predicted time."""
        return exp(self.shift)

    @property
    def factor(self) -> float:
        """Half width of the 80 % interval."""
        return exp(NORMAL_QUANTILE_90 * self.sd)


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The runs that answer one configuration's questions, factored once."""

    ids: tuple[str, ...]
    runs: Runs
    inverse: Array
    weighted_residuals: Array


@dataclass(frozen=True, slots=True)
class _Entry:
    """Configurations whose runs are equally alike to a question's."""

    score: float
    apart: float
    members: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceStore:
    """Stored runs, by configuration. ``EvidenceStore.of(runs)``, ``with_runs``, ``without_runs``; then ``refine``."""

    cells: Mapping[Configuration, Cell]
    index: Index
    run_count: int
    quarantined: frozenset[str]
    kernels: tuple[Kernel, Kernel]
    width_factors: Mapping[Phase, tuple[float, ...]]
    _codes: Codes = field(default_factory=Codes)
    _pools: dict[Configuration, _Pool] = field(default_factory=dict)

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

    def without_runs(self, runs: Iterable[Run]) -> "EvidenceStore":
        """As if these had never been added."""
        grouped: dict[Configuration, set[str]] = {}
        for run in runs:
            grouped.setdefault(run.configuration, set()).add(run.id)
        gone = {each for ids in grouped.values() for each in ids}
        return self._changed(
            {key: self.cells[key].without(ids) for key, ids in grouped.items() if key in self.cells},
            self.quarantined - gone,
        )

    def _changed(self, changed: Mapping[Configuration, Cell], quarantined: frozenset[str]) -> "EvidenceStore":
        cells = {**self.cells, **changed}
        added = sum(len(cell.ids) - len(self._cell(key).ids) for key, cell in changed.items())
        return replace(
            self,
            cells=cells,
            index=self.index.changed(changed.values()),
            run_count=self.run_count + added,
            quarantined=quarantined,
            _pools={},
        )

    def _cell(self, key: Configuration) -> Cell:
        return self.cells.get(key) or Cell(key, tuple(self._codes.of(key)), (), NO_NUMBERS)

    def refine(self, configuration: Configuration, point: Point) -> Refinement:
        """What the stored runs say about one predicted time."""
        return self.refine_many(configuration, (point,))[0]

    def refine_many(self, configuration: Configuration, points: Sequence[Point]) -> list[Refinement]:
        """The same for several points of one configuration, each as if it were asked alone."""
        kernel = self._kernel(configuration.phase)
        pool = self._pool(configuration)
        if pool is None:
            sd = kernel.prior_sd * self.width_factor(configuration.phase, 1.0)
            return [Refinement(0.0, sd, 1.0, Basis.MODELLED, ())] * len(points)
        asked = _runs_at(configuration, np.array(self._codes.of(configuration)), points)
        covariances = covariance(kernel, PHASE_ALIKE, asked, pool.runs)
        return [
            self._refinement(configuration.phase, pool, row, _is_measured(pool, asked, place))
            for place, row in enumerate(covariances)
        ]

    def _refinement(self, phase: Phase, pool: _Pool, covariances: Array, is_measured: bool) -> Refinement:
        """Kriging: the weighted residuals of the pool, and what of the prior variance they leave."""
        kernel = self._kernel(phase)
        weights = covariances @ pool.inverse
        variance = kernel.variance - float(weights @ covariances) + kernel.noise**2
        sd = sqrt(max(variance, kernel.noise**2))
        heaviest = np.argsort(-np.abs(weights), kind="stable")[:LEANS_ON]
        leans_on = tuple(Lean(pool.ids[run], float(weights[run])) for run in heaviest)
        distance = min(1.0, sd / kernel.prior_sd)
        basis = Basis.CALIBRATED if distance < FARTHEST_CALIBRATED else Basis.MODELLED
        return Refinement(
            shift=float(covariances @ pool.weighted_residuals),
            sd=sd * self.width_factor(phase, distance),
            distance=distance,
            basis=Basis.MEASURED if is_measured else basis,
            leans_on=leans_on,
        )

    def width_factor(self, phase: Phase, distance: float) -> float:
        return self.width_factors[phase][sum(distance >= edge for edge in DISTANCE_BINS)]

    def _kernel(self, phase: Phase) -> Kernel:
        return self.kernels[phase is Phase.TTFT]

    def _pool(self, configuration: Configuration) -> _Pool | None:
        """Kept by configuration; threads that miss at once find the same one."""
        kept = self._pools.get(configuration)
        if kept is not None:
            return kept
        if len(self._pools) >= KEPT_POOLS:
            self._pools.clear()
        chosen = self._nearest_runs(configuration)
        pool = self._factored(configuration, chosen) if chosen else None
        if pool is not None:
            self._pools[configuration] = pool
        return pool

    def _nearest_runs(self, configuration: Configuration) -> list[tuple[Cell, int]]:
        """The ``POOL_SIZE`` runs most alike at no distance, whatever the load that is asked about.

        Ties go by device count, distance from the reference point and id. Groups are scored at once; only those that
        can hold one of the runs are opened.
        """
        entries = sorted(self._entries(configuration), key=lambda each: (-each.score, each.apart))
        chosen: list[tuple[Cell, int]] = []
        for _, tied in groupby(entries, key=lambda each: (each.score, each.apart)):
            in_order = merge(*(entry.members for entry in tied), key=lambda cell: cell.first)
            cells = islice(in_order, POOL_SIZE)
            runs = merge(*(cell.placed() for cell in cells), key=lambda run: run[:2])
            chosen.extend((cell, row) for _, _, row, cell in islice(runs, POOL_SIZE - len(chosen)))
            if len(chosen) == POOL_SIZE:
                break
        return chosen

    def _entries(self, configuration: Configuration) -> list[_Entry]:
        """The best groups, and apart from them each configuration of the release that is asked about.

        A campaign is of one release, so that nothing else sets a group's members apart.
        """
        kernel, index, codes = self._kernel(configuration.phase), self.index, self._codes.of(configuration)
        phase_alike = PHASE_ALIKE[PHASES.index(configuration.phase)]
        alike = phase_alike[index.phases]
        score = np.full(len(alike), kernel.regime**2)
        for column in OF_GROUPS:
            if kernel.common[column] and codes[column] >= 0:
                score += (index.codes[:, column] == codes[column]) * kernel.common[column] ** 2
        score *= alike
        devices_log2 = log2(configuration.device_count)
        apart = np.abs(index.device_log2 - devices_log2)
        whole = np.flatnonzero((alike > 0) & (index.nearest < inf))
        own = index.by_release.get(codes[RELEASE], ()) if codes[RELEASE] >= 0 else ()
        own_rows = [index.rows[group(cell.key)] for cell in own]
        split = set(own_rows)
        most = POOL_SIZE + len(split)
        if len(whole) > most:
            rank = score[whole] - 1e-6 * np.minimum(apart[whole], 10.0) - 1e-9 * np.minimum(index.nearest[whole], 100.0)
            whole = whole[rank >= np.partition(rank, -most)[-most]]
        taken = {id(cell) for cell in own}
        entries = []
        for row in whole.tolist():
            members = index.members[row]
            if row in split:
                members = tuple(cell for cell in members if id(cell) not in taken)
            entries.append(_Entry(float(score[row]), float(apart[row]), members[:POOL_SIZE]))
        for cell, row in zip(own, own_rows, strict=True):
            extra = kernel.common[RELEASE] ** 2
            extra += kernel.common[CAMPAIGN] ** 2 * (cell.codes[CAMPAIGN] == codes[CAMPAIGN] >= 0)
            finer = float(score[row] + phase_alike[cell.phase] * extra) + kernel.run**2 * (cell.codes[-1] == codes[-1])
            if phase_alike[cell.phase]:
                entries.append(_Entry(finer, float(apart[row]), (cell,)))
        return entries

    def _factored(self, configuration: Configuration, chosen: list[tuple[Cell, int]]) -> _Pool:
        """Kriging weights of the pool. A run that the others miss by more than two sd is trusted less."""
        kernel = self._kernel(configuration.phase)
        numbers = np.array([cell.numbers[row] for cell, row in chosen])
        runs = Runs(
            codes=np.array([cell.codes for cell, _ in chosen]),
            phases=np.array([cell.phase for cell, _ in chosen]),
            coordinates=numbers[:, :COORDINATE_COUNT],
            root_shares=numbers[:, SHARES_AT:RESIDUAL_AT],
        )
        residuals = numbers[:, RESIDUAL_AT]
        prior = covariance(kernel, PHASE_ALIKE, runs, runs)
        inverse: Array = np.asarray(np.linalg.inv(prior + kernel.noise**2 * np.eye(len(residuals))), dtype=np.float64)
        spread = np.diag(inverse)
        missed_sd = np.abs(inverse @ residuals) / np.sqrt(spread)
        noise = kernel.noise**2 * np.minimum(np.maximum(missed_sd / OUTLIER_SD, 1.0) ** 4, MOST_NOISE)
        if (noise > kernel.noise**2).any():
            inverse = np.asarray(np.linalg.inv(prior + np.diag(noise)), dtype=np.float64)
        return _Pool(
            tuple(cell.ids[row] for cell, row in chosen),
            runs,
            inverse,
            np.asarray(inverse @ residuals, dtype=np.float64),
        )


def _runs_at(configuration: Configuration, codes: NDArray[np.int64], points: Sequence[Point]) -> Runs:
    return Runs(
        codes=np.broadcast_to(codes, (len(points), CODE_COUNT)),
        phases=np.full(len(points), PHASES.index(configuration.phase)),
        coordinates=np.array([coordinates_of(point, configuration.device_count) for point in points]),
        root_shares=np.sqrt(np.maximum([point.shares for point in points], 0.0)),
    )


def _is_measured(pool: _Pool, asked: Runs, place: int) -> bool:
    """Whether a stored run is of the very configuration and point."""
    configuration = asked.codes[place, -1]
    same = (pool.runs.codes[:, -1] == configuration) & (configuration >= 0)
    apart = np.abs(pool.runs.coordinates - asked.coordinates[place]).max(1)
    return bool((same & (apart < SAME_POINT)).any())


SAME_POINT: Final = 1e-9
