"""A predicted number with the interval that it is expected to lie in."""

from enum import StrEnum
from math import erf, log, sqrt
from typing import NamedTuple

from service.sizing.parameters import NO_TAIL, Tail

INTERVAL_COVERAGE_FRACTION = 0.8


class Basis(StrEnum):
    """What an estimate rests on: a stored run of the very thing, runs near it, or the model alone."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    MODELLED = "modelled"


class Estimate(NamedTuple):
    """``low`` to ``high`` holds the truth in ``coverage_fraction`` of cases; ``None`` where that was never measured."""

    value: float
    low: float
    high: float
    coverage_fraction: float | None
    basis: Basis = Basis.MODELLED

    @classmethod
    def within_factor(cls, value: float, factor: float, coverage_fraction: float | None) -> "Estimate":
        """From value / factor to value * factor: errors of speed are even in the logarithm.

        >>> Estimate.within_factor(0.02, 2.0, 0.8).high
        0.04
        """
        return cls(value, value / factor, value * factor, coverage_fraction)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def per(self, other: "Estimate") -> "Estimate":
        """This divided by another, as if the errors of both pushed the same way: wide rather than wrong.

        How often such a ratio of two uncertain numbers holds was never measured, so it claims no coverage.

        >>> Estimate(10, 5, 20, 0.8).per(Estimate(2, 1, 4, 0.8))
        Estimate(value=5.0, low=1.25, high=20.0, coverage_fraction=None, basis=<Basis.MODELLED: 'modelled'>)
        """
        exact, uncertain = (self, other) if self.is_exact else (other, self)
        coverage = uncertain.coverage_fraction if exact.is_exact else None
        return Estimate(self.value / other.value, self.low / other.high, self.high / other.low, coverage, self.basis)

    def scaled(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.coverage_fraction, self.basis)

    def plus(self, constant: float) -> "Estimate":
        """A known amount more, low and high alike."""
        return Estimate(
            self.value + constant, self.low + constant, self.high + constant, self.coverage_fraction, self.basis
        )

    def without_coverage(self) -> "Estimate":
        """The same interval, with nothing claimed of how often it holds."""
        return self._replace(coverage_fraction=None)

    def reciprocal_of(self, numerator: float) -> "Estimate":
        """A rate from a time: the slow end of the time is the low end of the rate."""
        return Estimate(
            numerator / self.value, numerator / self.high, numerator / self.low, self.coverage_fraction, self.basis
        )


def probability_at_most(limit: float, *, median: float, sd: float, tail: Tail = NO_TAIL) -> float:
    """Probability that a latency keeps a limit when ln(latency) is normal about the predicted median.

    A percentile multiplies the median by the tail's ratio and adds its spread.

    >>> probability_at_most(0.05, median=0.05, sd=0.4)
    0.5
    """
    centre = log(median * tail.ratio)
    spread = sqrt(sd * sd + tail.sd * tail.sd)
    return 0.5 * (1 + erf((log(limit) - centre) / (spread * sqrt(2))))
