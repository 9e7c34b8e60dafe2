"""What the stored runs most alike say about any point of one configuration: kriging, its matrices worked out once.

``shift`` is the expected ln(measured / predicted) at a point, ``sd`` what is left of its spread::

    K = W_near exp(-|c - q|^2 / 2) + W_regime exp(-|s - t|^2 / 2) + W_run exp(-|c - q|) + W_everywhere
    shift = K A^-1 r,   variance = prior - K A^-1 K + noise^2,   A = covariance of the pool + noise

with ``c`` and ``q`` the coordinates of the pool's runs and of the point in the kernel's distances, ``s`` and ``t`` the
roots of what their predicted times consist of. Squares are multiplied out, so that a point costs one matrix product
and one exponential for all three.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from service.sizing.coverage import coverage_fraction
from service.sizing.estimate import Basis
from service.sizing.evidence_index import MEASURED_AT, REFERENCE_AT, RESIDUAL_AT, SHARES_AT, Cell, coordinates_of
from service.sizing.kernel import (
    CODE_COUNT,
    COORDINATE_COUNT,
    SHARE_COUNT,
    Array,
    Kernel,
    Runs,
    covariance,
)
from service.sizing.parameters import NORMAL_QUANTILE_90
from service.sizing.run_identity import Configuration, Point
from service.sizing.run_terms import PHASES, Phase

OUTLIER_SD, MOST_NOISE = 2.0, 400.0
LEANS_ON: Final = 5
FARTHEST_CALIBRATED: Final = 0.95  # beyond, the evidence says next to nothing
SAME_POINT: Final = 1e-9
TINY: Final = 1e-12  # keeps the square of a distance from rounding to less than nothing

# P: 1 within a phase, half between two phases of decode.
PHASE_ALIKE: Final = np.array(
    [[1.0 if one is two else 0.5 * (one.is_decode and two.is_decode) for two in PHASES] for one in PHASES]
)

DISTANCE_BINS: Final = (0.25, 0.40, 0.55, 0.70)


@dataclass(frozen=True, slots=True)
class Lean:
    """A run that an answer leans on, the weight of its residual in the shift, and its time as the physics has it."""

    run: str
    phase: Phase
    weight: float
    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class Refinement:
    """What evidence does to a predicted time. ``distance`` runs from 0 (measured) to 1 (nothing near).

    ``sd_if_measured`` is the spread that would be left if one more run were measured at this very point.
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


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """The runs that answer one configuration's questions: ``at`` a point, what that ``leans_on``, only the ``shift``.

    ``products`` times a point's features gives three distances to every run: near and regime, halved squares, and the
    square of run, in ``run_block``. ``weights`` scales their exponentials.
    """

    kernel: Kernel
    width_factors: tuple[float, ...]
    device_count: int
    chosen: tuple[tuple[Cell, int], ...]
    products: Array
    run_block: slice
    weights: Array
    everywhere: Array
    inverse: Array
    shift_weights: Array
    shift_everywhere: float
    same_coordinates: Array
    same_residuals: Array
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
        pool = Runs(
            codes=np.array([cell.codes for cell, _ in chosen], dtype=np.int64).reshape(-1, CODE_COUNT),
            phases=np.array([cell.phase for cell, _ in chosen], dtype=np.int64),
            coordinates=numbers[:, :COORDINATE_COUNT],
            root_shares=numbers[:, SHARES_AT:RESIDUAL_AT],
        )
        inverse = _trusted_inverse(kernel, pool, numbers[:, RESIDUAL_AT])
        kriged = inverse @ numbers[:, RESIDUAL_AT]
        everywhere, weights = _likeness(kernel, configuration.phase, codes, pool)
        same = pool.codes[:, -1] == codes[-1] if codes[-1] >= 0 else np.zeros(len(chosen), dtype=bool)
        return cls(
            kernel=kernel,
            width_factors=width_factors,
            device_count=configuration.device_count,
            chosen=tuple(chosen),
            products=_products(kernel, pool),
            run_block=slice(2 * len(chosen), None),
            weights=weights,
            everywhere=everywhere,
            inverse=inverse,
            shift_weights=(weights * kriged).ravel(),
            shift_everywhere=float(everywhere @ kriged),
            same_coordinates=pool.coordinates[same],
            same_residuals=numbers[same, RESIDUAL_AT],
            coverage_fraction=coverage_fraction(configuration.hardware_group, configuration.phase),
        )

    def shift(self, point: Point) -> float:
        """Expected ln(measured / predicted)."""
        return self.shift_everywhere + float(self.shift_weights @ self._exponentials(point))

    def at(self, point: Point) -> Refinement:
        kernel, exponentials = self.kernel, self._exponentials(point)
        likeness = (self.weights * exponentials.reshape(3, -1)).sum(0) + self.everywhere
        weights = likeness @ self.inverse
        latent = max(0.0, kernel.variance - float(weights @ likeness))
        noise = kernel.noise**2
        distance = min(1.0, sqrt(latent + noise) / kernel.prior_sd)
        shift = self.shift_everywhere + float(self.shift_weights @ exponentials)
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
            sd_if_measured=self._calibrated_sd(latent * noise / (latent + noise) + noise),
            coverage_fraction=self.coverage_fraction,
            disagreement=disagreement,
            weights=weights,
        )

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
        heaviest = np.argsort(-np.abs(weights), kind="stable")[:LEANS_ON].tolist()
        return tuple([self._lean(place, float(weights[place])) for place in heaviest])

    def _lean(self, place: int, weight: float) -> Lean:
        cell, row = self.chosen[place]
        measured_s, residual = float(cell.numbers[row, MEASURED_AT]), float(cell.numbers[row, RESIDUAL_AT])
        return Lean(cell.spots[row].run_id, cell.key.phase, weight, measured_s, measured_s / exp(residual))

    def _exponentials(self, point: Point) -> Array:
        """Of near, regime and run, one after the other. Numbers by hand: there are too few of them for arrays."""
        batch, isl, osl, devices = coordinates_of(point, self.device_count)
        batch_2, isl_2, osl_2, devices_2 = batch * batch, isl * isl, osl * osl, devices * devices
        a, b, c, d = self.kernel.near_scales
        near_2 = a * batch_2 + b * isl_2 + c * osl_2 + d * devices_2
        a, b, c = self.kernel.run_scales
        run_2 = a * batch_2 + b * isl_2 + c * osl_2 + TINY
        shares = point.shares
        features = (batch, isl, osl, devices, *map(sqrt, shares), 1.0, near_2, run_2, sum(shares))
        distances: Array = self.products @ features
        runs = distances[self.run_block]
        np.sqrt(runs, out=runs)
        np.negative(distances, out=distances)
        return np.exp(distances, out=distances)


def _likeness(kernel: Kernel, phase: Phase, codes: Sequence[int], pool: Runs) -> tuple[Array, Array]:
    """Variance shared with each run of the pool: everywhere, and what fades with distance (near, regime, run)."""
    alike = PHASE_ALIKE[PHASES.index(phase)][pool.phases]
    asked = np.array(codes)
    everywhere, near, run = (((pool.codes == asked) & (asked >= 0)) @ kernel.component_variances).T
    return alike * everywhere, np.stack([alike * near, alike * kernel.regime**2, run])


def _products(kernel: Kernel, pool: Runs) -> Array:
    """Rows of near, regime and run; columns of coordinates, roots of shares, 1, and the point's own squares."""
    count, at, shares = len(pool.phases), pool.coordinates, pool.root_shares
    near, run = kernel.distance_scales.T
    regime = 1 / kernel.regime_distance**2
    one, none, no_shares = np.ones((count, 1)), np.zeros((count, 1)), np.zeros((count, SHARE_COUNT))
    near_square, run_square = (at**2 @ kernel.distance_scales).T[..., None]
    share_square = (shares**2).sum(1, keepdims=True)
    return np.concatenate(
        [
            np.hstack([-at * near, no_shares, near_square / 2, one / 2, none, none]),
            np.hstack([0 * at, -regime * shares, regime * share_square / 2, none, none, regime * one / 2]),
            np.hstack([-2 * at * run, no_shares, run_square, none, one, none]),
        ]
    )


def _trusted_inverse(kernel: Kernel, pool: Runs, residuals: NDArray[np.float64]) -> Array:
    """Of the pool's covariance. A run that the others miss by more than two sd is trusted less."""
    prior = covariance(kernel, PHASE_ALIKE, pool, pool)
    np.fill_diagonal(prior, kernel.variance)  # a run is itself, also in what is not known of it
    inverse = np.asarray(np.linalg.inv(prior + kernel.noise**2 * np.eye(len(residuals))), dtype=np.float64)
    missed_sd = np.abs(inverse @ residuals) / np.sqrt(np.diag(inverse))
    noise = kernel.noise**2 * np.minimum(np.maximum(missed_sd / OUTLIER_SD, 1.0) ** 4, MOST_NOISE)
    if (noise > kernel.noise**2).any():
        inverse = np.asarray(np.linalg.inv(prior + np.diag(noise)), dtype=np.float64)
    return inverse
