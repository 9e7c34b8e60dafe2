"""What is asked of the machine: lengths and targets."""

from enum import StrEnum
from math import exp, log
from typing import NamedTuple

NORMAL_QUANTILE_95 = 1.6449


class Statistic(StrEnum):
    MEAN = "mean"
    P50 = "p50"
    P90 = "p90"
    P99 = "p99"


class Length(NamedTuple):
    """A length in tokens: its mean, and its 95th percentile where that is known."""

    mean_tokens: int
    p95_tokens: int | None = None

    @classmethod
    def of_percentiles(cls, *, p50_tokens: int, p95_tokens: int) -> "Length":
        """The mean of a log-normal length with that median and 95th percentile.

        ``mean = p50 * exp(sigma^2 / 2)`` with ``sigma = ln(p95 / p50) / 1.6449``.

        >>> Length.of_percentiles(p50_tokens=1000, p95_tokens=1000).mean_tokens
        1000
        """
        sigma = log(p95_tokens / p50_tokens) / NORMAL_QUANTILE_95
        return cls(round(p50_tokens * exp(sigma * sigma / 2)), p95_tokens)


class Target(NamedTuple):
    """Latency limits at a statistic; ``None`` is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    statistic: Statistic | None = None

    @property
    def is_set(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None
