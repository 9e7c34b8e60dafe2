"""The matrices of kriging from a pool of runs, worked out once, and the products that they are worked out for.

A point's features times ``products`` give three distances to every run: near and regime, halved squares, and the square
of run. Their exponentials, scaled by ``weights``, are the variance that the point shares with each run beside what it
shares ``everywhere``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.sizing.evidence_index import POOL_SIZE
from service.sizing.kernel import SHARE_COUNT, Array, Kernel, Runs, covariance

OUTLIER_SD, MOST_NOISE = 2.0, 400.0
RUN_BLOCK: Final = slice(2 * POOL_SIZE, None)


class Kriging(NamedTuple):
    """Of one pool, or of several with an axis more: array calls cost more than the arithmetic in them.

    A smaller pool is filled up with runs that share nothing, so that all are of one size. ``inverse`` is in two halves
    of columns: for the whole of 96 x 96 OpenBLAS starts a second thread, and waits for it longer than the product
    takes.
    """

    products: Array
    weights: Array
    everywhere: Array
    inverse: Array
    shift_weights: Array
    shift_everywhere: Array

    @classmethod
    def of(
        cls, kernel: Kernel, pool: Runs, residuals: Array, *, phase: int, codes: Sequence[int], phase_alike: Array
    ) -> "Kriging":
        everywhere, weights = _likeness(kernel, phase_alike[phase][pool.phases], codes, pool)
        inverse = _trusted_inverse(kernel, phase_alike, pool, residuals)
        kriged = inverse @ residuals
        missing = (0, POOL_SIZE - len(residuals))
        products = np.pad(_distance_products(kernel, pool), ((0, 0), missing, (0, 0)))
        halves = np.pad(inverse, (missing, missing)).reshape(POOL_SIZE, 2, -1)
        return cls(
            products=products.reshape(3 * POOL_SIZE, -1).T.copy(),
            weights=np.pad(weights, ((0, 0), missing)).reshape(1, -1),
            everywhere=np.pad(everywhere, missing).reshape(1, -1),
            inverse=halves.transpose(1, 0, 2).copy(),
            shift_weights=np.pad(weights * kriged, ((0, 0), missing)).reshape(-1, 1),
            shift_everywhere=np.array(everywhere @ kriged),
        )

    @classmethod
    def stacked(cls, pools: Iterable["Kriging"]) -> "Kriging":
        return cls(*(np.stack(arrays) for arrays in zip(*pools, strict=True)))

    def part(self, which: slice | int) -> "Kriging":
        """Some of several pools."""
        return Kriging(*(each[which] for each in self))

    def exponentials(self, features: Array) -> Array:
        """A row for each point: of near, regime and run, one after the other."""
        distances: Array = features @ self.products
        runs = distances[..., RUN_BLOCK]
        np.sqrt(runs, out=runs)
        np.negative(distances, out=distances)
        return np.exp(distances, out=distances)

    def shifts(self, exponentials: Array) -> Array:
        """Expected ln(measured / predicted) at each point."""
        shifts: Array = (exponentials @ self.shift_weights)[..., 0] + self.shift_everywhere[..., None]
        return shifts

    def weights_and_known(self, exponentials: Array) -> tuple[Array, Array]:
        """The weight of every run at each point, and how much of the prior variance they take away."""
        shape = (*exponentials.shape[:-1], 3, POOL_SIZE)
        shared = (self.weights * exponentials).reshape(shape).sum(-2) + self.everywhere
        halves = shared[..., None, :, :] @ self.inverse
        weights = np.concatenate((halves[..., 0, :, :], halves[..., 1, :, :]), -1)
        return weights, (weights * shared).sum(-1)


def _likeness(kernel: Kernel, alike: Array, codes: Sequence[int], pool: Runs) -> tuple[Array, Array]:
    """Variance shared with each run of the pool: everywhere, and what fades with distance (near, regime, run)."""
    asked = np.array(codes)
    everywhere, near, run = (((pool.codes == asked) & (asked >= 0)) @ kernel.component_variances).T
    return alike * everywhere, np.stack([alike * near, alike * kernel.regime**2, run])


def _distance_products(kernel: Kernel, pool: Runs) -> Array:
    """Of near, regime and run, a row for each run; columns of coordinates, roots of shares, 1, and own squares."""
    count, at, shares = len(pool.phases), pool.coordinates, pool.root_shares
    near, run = kernel.distance_scales.T
    regime = 1 / kernel.regime_distance**2
    one, none, no_shares = np.ones((count, 1)), np.zeros((count, 1)), np.zeros((count, SHARE_COUNT))
    near_square, run_square = (at**2 @ kernel.distance_scales).T[..., None]
    share_square = (shares**2).sum(1, keepdims=True)
    return np.stack(
        [
            np.hstack([-at * near, no_shares, near_square / 2, one / 2, none, none]),
            np.hstack([0 * at, -regime * shares, regime * share_square / 2, none, none, regime * one / 2]),
            np.hstack([-2 * at * run, no_shares, run_square, none, one, none]),
        ]
    )


def _trusted_inverse(kernel: Kernel, phase_alike: Array, pool: Runs, residuals: NDArray[np.float64]) -> Array:
    """Of the pool's covariance. A run that the others miss by more than two sd is trusted less."""
    prior = covariance(kernel, phase_alike, pool, pool)
    np.fill_diagonal(prior, kernel.variance)  # a run is itself, also in what is not known of it
    inverse = np.asarray(np.linalg.inv(prior + kernel.noise**2 * np.eye(len(residuals))), dtype=np.float64)
    missed_sd = np.abs(inverse @ residuals) / np.sqrt(np.diag(inverse))
    noise = kernel.noise**2 * np.minimum(np.maximum(missed_sd / OUTLIER_SD, 1.0) ** 4, MOST_NOISE)
    if (noise > kernel.noise**2).any():
        inverse = np.asarray(np.linalg.inv(prior + np.diag(noise)), dtype=np.float64)
    return inverse
