"""How alike the errors of two runs are expected to be, before either is seen.

The prior covariance of the residuals ln(measured / predicted) of two runs, ``[..]`` being 1 where all named fields are
equal and known::

    K = P * ( regime^2 RS + accelerator^2 [accelerator] + model^2 [model] + version^2 [release] + campaign^2 [campaign]
              + R1 * (kind^2 [..] + … + model_accelerator^2 [..]) )
      + R2 * run^2 [same configuration]

``P`` is 1 within a phase, 0.5 between two phases of decode, else 0. ``R1`` and ``R2`` fall with the distance of batch,
lengths and device count in powers of two, ``RS`` with the distance of what the predicted times consist of: two runs
limited by the same thing err alike, whatever the chip.

Source of the numbers: searched on leave-group-out errors of the shipped runs (see ``service.calibration``), so that
cross-validated figures are slightly optimistic. Those of TTFT lie halfway (variances, logarithms of distances) between
an earlier kernel and the best for half of the campaigns: the mean predicted the other half better than either.
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What two runs may have in common, in the order of a run's codes. R1 multiplies the ones from "kind" on.
COMMON: Final = (
    "accelerator",
    "model",
    "release",
    "campaign",
    "kind",
    "accelerator_kind",
    "model_family",
    "model_engine",
    "kind_family",
    "model_accelerator",
)
FIRST_LOCAL: Final = COMMON.index("kind")
CODE_COUNT: Final = len(COMMON) + 1  # and the whole configuration
COORDINATE_COUNT: Final = 4  # log2 of batch, input, output, devices
SHARE_COUNT: Final = 7


@dataclass(frozen=True)
class Kernel:
    """Standard deviations of each component, and the distances (in powers of two) over which they fade."""

    regime: float
    common: tuple[float, ...]  # in the order of COMMON
    run: float
    noise: float
    regime_distance: float
    distances: tuple[float, float, float, float]  # batch, input, output, devices
    run_distances: tuple[float, float, float]  # batch, input, output

    @cached_property
    def variance(self) -> float:
        """Of a run's residual without its noise."""
        return self.regime**2 + sum(each**2 for each in self.common) + self.run**2

    @cached_property
    def prior_sd(self) -> float:
        return sqrt(self.variance + self.noise**2)

    @cached_property
    def component_variances(self) -> Array:
        """A row for each code; columns: what is shared everywhere, what fades (R1), and the run's own (R2)."""
        table = np.zeros((CODE_COUNT, 3))
        for row, sd in enumerate(self.common):
            table[row, int(row >= FIRST_LOCAL)] = sd * sd
        table[-1, 2] = self.run**2
        return table

    @cached_property
    def distance_scales(self) -> Array:
        """What squared distances are multiplied with: columns of R1 and R2."""
        return np.array([self.near_scales, (*self.run_scales, 0.0)]).T

    @cached_property
    def near_scales(self) -> tuple[float, float, float, float]:
        batch, isl, osl, devices = self.distances
        return batch**-2, isl**-2, osl**-2, devices**-2

    @cached_property
    def run_scales(self) -> tuple[float, float, float]:
        batch, isl, osl = self.run_distances
        return batch**-2, isl**-2, osl**-2


RATES_KERNEL: Final = Kernel(
    regime=0.0455,
    common=(0.0199, 0.00325, 0.0572, 0.0, 0.136, 0.0, 0.0400, 0.0750, 0.0906, 0.08),
    run=0.03,
    noise=0.0535,
    regime_distance=0.13,
    distances=(2.4, 5.3, 3.0, 1.93),
    run_distances=(7.8, 9.2, 6.5),
)
TTFT_KERNEL: Final = Kernel(
    regime=0.376,
    common=(0.042, 0.146, 0.108, 0.0, 0.267, 0.0183, 0.138, 0.387, 0.25, 0.05),
    run=0.0163,
    noise=0.125,
    regime_distance=0.133,
    distances=(1.56, 1.35, 2.98, 2.52),
    run_distances=(7.8, 9.2, 6.5),
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs as arrays: integer codes (equal where alike, negative where unknown), coordinates, roots of shares."""

    codes: NDArray[np.int64]
    phases: NDArray[np.int64]
    coordinates: Array
    root_shares: Array


def covariance(kernel: Kernel, phase_alike: Array, one: Runs, other: Runs) -> Array:
    """K of every run of ``one`` with every run of ``other``; ``phase_alike`` is the table of P."""
    alike = phase_alike[one.phases[:, None], other.phases[None, :]]
    codes, other_codes = one.codes[:, None, :], other.codes[None, :, :]
    same = (codes == other_codes) & (codes >= 0)
    everywhere, nearby, same_run = np.moveaxis(same @ kernel.component_variances, -1, 0)
    apart, run_apart = (
        _squared_distance(one.coordinates * scale, other.coordinates * scale)
        for scale in np.sqrt(kernel.distance_scales).T
    )
    shares = _squared_distance(one.root_shares, other.root_shares)
    near_regime = np.exp(-0.5 / kernel.regime_distance**2 * shares)
    result: Array = alike * (kernel.regime**2 * near_regime + everywhere + np.exp(-0.5 * apart) * nearby)
    result += same_run * np.exp(-np.sqrt(run_apart))
    return result


def _squared_distance(one: Array, other: Array) -> Array:
    """Of every row to every row, multiplied out."""
    own, others = (one**2).sum(1), (other**2).sum(1)
    square: Array = own[:, None] + others[None, :] - 2 * one @ other.T
    return np.maximum(square, 0.0)
