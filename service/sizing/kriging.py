"""The matrices of a neighbourhood, worked out once: what its runs share with a question and with each other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.sizing.kernel import SHARE_COUNT, Array, Kernel, Runs, covariance

OUTLIER_SD, MOST_NOISE = 2.0, 400.0


def likeness(kernel: Kernel, alike: Array, codes: Sequence[int], pool: Runs) -> tuple[Array, Array]:
    """Variance shared with each run of the pool: everywhere, and what fades with distance (near, regime, run)."""
    asked = np.array(codes)
    everywhere, near, run = (((pool.codes == asked) & (asked >= 0)) @ kernel.component_variances).T
    return alike * everywhere, np.stack([alike * near, alike * kernel.regime**2, run])


def distance_products(kernel: Kernel, pool: Runs) -> Array:
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


def trusted_inverse(kernel: Kernel, phase_alike: Array, pool: Runs, residuals: NDArray[np.float64]) -> Array:
    """Of the pool's covariance. A run that the others miss by more than two sd is trusted less."""
    prior = covariance(kernel, phase_alike, pool, pool)
    np.fill_diagonal(prior, kernel.variance)  # a run is itself, also in what is not known of it
    inverse = np.asarray(np.linalg.inv(prior + kernel.noise**2 * np.eye(len(residuals))), dtype=np.float64)
    missed_sd = np.abs(inverse @ residuals) / np.sqrt(np.diag(inverse))
    noise = kernel.noise**2 * np.minimum(np.maximum(missed_sd / OUTLIER_SD, 1.0) ** 4, MOST_NOISE)
    if (noise > kernel.noise**2).any():
        inverse = np.asarray(np.linalg.inv(prior + np.diag(noise)), dtype=np.float64)
    return inverse


def in_halves(inverse: Array) -> Array:
    """Of columns; the last of an odd number is followed by one of zeros.

    For the whole of 96 x 96 OpenBLAS starts a second thread, and waits for it longer than the product takes.
    """
    half = (len(inverse) + 1) // 2
    even = np.pad(inverse, ((0, 0), (0, len(inverse) % 2)))
    return np.stack([even[:, :half], even[:, half:]])
