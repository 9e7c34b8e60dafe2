"""What the stored runs most alike say about any point of one configuration: kriging, its matrices worked out once.

``shift`` is the expected ln(measured / predicted) at a point, ``sd`` what is left of its spread::

    K = W_near exp(-|c - q|^2 / 2) + W_regime exp(-|s - t|^2 / 2) + W_run exp(-|c - q|) + W_everywhere
    shift = K A^-1 r,   variance = prior - K A^-1 K + noise^2,   A = covariance of the pool + noise

with ``c`` and ``q`` the coordinates of the pool's runs and of the point in the kernel's distances, ``s`` and ``t`` the
roots of what their predicted times consist of. Squares are multiplied out, so that points cost one matrix product
and one exponential for all three.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from typing import Final, NamedTuple

import numpy as np

from service.sizing.coverage import coverage_fraction
from service.sizing.estimate import Basis
from service.sizing.evidence_index import MEASURED_AT, REFERENCE_AT, RESIDUAL_AT, SHARES_AT, Cell, coordinates_of, names
from service.sizing.kernel import CODE_COUNT, COORDINATE_COUNT, Array, Kernel, Runs
from service.sizing.kriging import Kriging
from service.sizing.parameters import NORMAL_QUANTILE_90
from service.sizing.run_identity import Configuration, Point
from service.sizing.run_terms import PHASES, Phase

LEANS_ON: Final = 5
FARTHEST_CALIBRATED: Final = 0.95  # beyond, the evidence says next to nothing
SAME_POINT: Final = 1e-9
TINY: Final = 1e-12  # keeps the square of a distance from rounding to less than nothing

# P: 1 within a phase, half between two phases of decode.
PHASE_ALIKE: Final = np.array(
    [[1.0 if one is two else 0.5 * (one.is_decode and two.is_decode) for two in PHASES] for one in PHASES]
)

DISTANCE_BINS: Final = (0.25, 0.40, 0.55, 0.70)


class Lean(NamedTuple):
    """A run that an answer leans on, the weight of its residual in the shift, and its time as the physics has it."""

    run: str
    phase: Phase
    weight: float
    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class Refinement:
    """What evidence does to a predicted time. ``distance`` runs from 0 (measured) to 1 (nothing near).

    ``sd_if_measured`` is the spread that would be left if one more run were measured at this very point, of any release
    where none was asked about.
    ``coverage_fraction``: how often intervals hold for such parts in such a phase; ``None`` where nobody measured it.
    ``disagreement`` is ln(measured / answer) of what was measured at this very point where the runs around it make it
    so unlikely that the interval had to be widened to hold it, else 0.
    """

    shift: float
    sd: float
    distance: float
    basis: Basis
    sd_if_measured: float
    coverage_fraction: float | None
    disagreement: float
    weights: Array = field(compare=False, repr=False)

    @property
    def ratio(self) -> float:
        """Multiplies the predicted time."""
        return exp(self.shift)

    @property
    def factor(self) -> float:
        """Half width of the 80 % interval."""
        return exp(NORMAL_QUANTILE_90 * self.sd)

    @property
    def factor_if_measured(self) -> float:
        return exp(NORMAL_QUANTILE_90 * self.sd_if_measured)


class _Chosen(NamedTuple):
    """A run of the pool, as answers name it."""

    run: str
    phase: Phase
    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """The runs that answer one configuration's questions: ``at`` a point, and what that ``leans_on``."""

    kernel: Kernel
    width_factors: tuple[float, ...]
    device_count: int
    chosen: tuple[_Chosen, ...]
    kriging: Kriging
    same_coordinates: Array
    same_residuals: Array
    unshared_variance: float
    coverage_fraction: float | None

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        codes: Sequence[int],
        chosen: Sequence[tuple[Cell, int]],
        *,
        kernel: Kernel,
        width_factors: tuple[float, ...],
    ) -> "Neighbourhood":
        numbers = np.array([cell.numbers[row] for cell, row in chosen]).reshape(len(chosen), REFERENCE_AT + 1)
        residuals = numbers[:, RESIDUAL_AT]
        pool = Runs(
            codes=np.array([cell.codes for cell, _ in chosen], dtype=np.int64).reshape(-1, CODE_COUNT),
            phases=np.array([cell.phase for cell, _ in chosen], dtype=np.int64),
            coordinates=numbers[:, :COORDINATE_COUNT],
            root_shares=numbers[:, SHARES_AT:RESIDUAL_AT],
        )
        same = pool.codes[:, -1] == codes[-1] if codes[-1] >= 0 else np.zeros(len(chosen), dtype=bool)
        return cls(
            kernel=kernel,
            width_factors=width_factors,
            device_count=configuration.device_count,
            chosen=tuple(
                _Chosen(cell.spots[row].run_id, cell.key.phase, measured_s, measured_s / exp(residual))
                for (cell, row), measured_s, residual in zip(
                    chosen, numbers[:, MEASURED_AT].tolist(), residuals.tolist(), strict=True
                )
            ),
            kriging=Kriging.of(
                kernel,
                pool,
                residuals,
                phase=PHASES.index(configuration.phase),
                codes=codes,
                phase_alike=PHASE_ALIKE,
            ),
            same_coordinates=pool.coordinates[same],
            same_residuals=residuals[same],
            unshared_variance=float(kernel.component_variances[[name is None for name in names(configuration)]].sum()),
            coverage_fraction=coverage_fraction(configuration.hardware_group, configuration.phase),
        )

    def at(self, point: Point) -> Refinement:
        exponentials = self._exponentials(point)
        weights, known = self.kriging.weights_and_known(exponentials)
        return self.refinement(point, float(self.kriging.shifts(exponentials)[0]), float(known[0]), weights[0])

    def _exponentials(self, point: Point) -> Array:
        return self.kriging.exponentials(np.array([self.features(point)]))

    def refinement(self, point: Point, shift: float, known: float, weights: Array) -> Refinement:
        """``known``: how much of the prior variance the runs take away."""
        kernel = self.kernel
        latent, noise = max(0.0, kernel.variance - known), kernel.noise**2
        distance = min(1.0, sqrt(latent + noise) / kernel.prior_sd)
        sd, disagreement = self._calibrated_sd(latent + noise), 0.0
        basis = Basis.CALIBRATED if distance < FARTHEST_CALIBRATED else Basis.MODELLED
        measured = self._measured_here(point)
        if measured is not None:
            needed_sd = abs(measured - shift) / NORMAL_QUANTILE_90
            if needed_sd > sd:
                sd, disagreement = needed_sd, measured - shift
            else:
                basis = Basis.MEASURED
        return Refinement(
            shift=shift,
            sd=sd,
            distance=distance,
            basis=basis,
            sd_if_measured=self._calibrated_sd(self._left_if_measured(latent) + noise),
            coverage_fraction=self.coverage_fraction,
            disagreement=disagreement,
            weights=weights,
        )

    def _left_if_measured(self, latent: float) -> float:
        """Of the variance, were one more run measured here. What is not known of the question, its release above all,
        the run has a value of its own of, which the question does not share."""
        shared = max(0.0, latent - self.unshared_variance)
        return latent - shared * shared / (latent + self.kernel.noise**2)

    def _calibrated_sd(self, variance: float) -> float:
        """Kriging's spread, times what makes intervals hold at that distance from evidence."""
        sd = sqrt(variance)
        distance = min(1.0, sd / self.kernel.prior_sd)
        return sd * self.width_factors[bisect(DISTANCE_BINS, distance)]

    def _measured_here(self, point: Point) -> float | None:
        """The median residual of the stored runs of the very configuration and point."""
        if not len(self.same_coordinates):
            return None
        apart = np.abs(self.same_coordinates - coordinates_of(point, self.device_count)).max(1)
        here = self.same_residuals[apart < SAME_POINT]
        return float(np.median(here)) if len(here) else None

    def leans_on(self, refinement: Refinement) -> tuple[Lean, ...]:
        """The runs with the largest weights in an answer of ``at``."""
        weights = refinement.weights
        heaviest = np.argsort(-np.abs(weights), kind="stable")[: min(LEANS_ON, len(self.chosen))]
        return tuple([self._lean(place, weights.item(place)) for place in heaviest.tolist()])

    def _lean(self, place: int, weight: float) -> Lean:
        run, phase, measured_s, predicted_s = self.chosen[place]
        return Lean(run, phase, weight, measured_s, predicted_s)

    def features(self, point: Point) -> tuple[float, ...]:
        """Numbers by hand: there are too few of them for arrays."""
        batch, isl, osl, devices = coordinates_of(point, self.device_count)
        batch_2, isl_2, osl_2 = batch * batch, isl * isl, osl * osl
        a, b, c, d = self.kernel.near_scales
        near_2 = a * batch_2 + b * isl_2 + c * osl_2 + d * devices * devices
        a, b, c = self.kernel.run_scales
        run_2 = a * batch_2 + b * isl_2 + c * osl_2 + TINY
        shares = point.shares
        return (batch, isl, osl, devices, *map(sqrt, shares), 1.0, near_2, run_2, sum(shares))


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhoods:
    """Those of several phases of one question, asked at once; ``shifts`` of the first ``SHIFTED`` alone."""

    members: tuple[Neighbourhood, ...]
    kriging: Kriging
    kriging_of_shifts: Kriging

    @classmethod
    def of(cls, members: Sequence[Neighbourhood]) -> "Neighbourhoods":
        """Of members that share its matrices."""
        kriging = Kriging.stacked([each.kriging for each in members])
        sharing = [replace(each, kriging=kriging.part(place)) for place, each in enumerate(members)]
        return cls(tuple(sharing), kriging, kriging.part(slice(SHIFTED)))

    def shifts(self, points: Sequence[Sequence[Point]]) -> list[list[float]]:
        """Of each member, at as many points of each."""
        kriging = self.kriging_of_shifts
        shifts: list[list[float]] = kriging.shifts(kriging.exponentials(self._features(points))).tolist()
        return shifts

    def at(self, points: Sequence[Sequence[Point]]) -> list[list[Refinement]]:
        """Of each member, at its points; those that have fewer than the first are asked about the last one again."""
        most = len(points[0])
        exponentials = self.kriging.exponentials(
            self._features([[*own, *[own[-1]] * (most - len(own))] for own in points])
        )
        weights, known = self.kriging.weights_and_known(exponentials)
        shifts = self.kriging.shifts(exponentials).tolist()
        return [
            [*map(member.refinement, *of_member)]
            for member, *of_member in zip(self.members, points, shifts, known.tolist(), weights, strict=True)
        ]

    def _features(self, points: Sequence[Sequence[Point]]) -> Array:
        """From one flat list: nested ones cost an array more than its numbers."""
        numbers: list[float] = []
        for member, own in zip(self.members, points, strict=False):
            for point in own:
                numbers += member.features(point)
        return np.array(numbers).reshape(len(points), len(points[0]), -1)


SHIFTED: Final = 2
