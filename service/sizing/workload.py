"""What is asked of the machine: lengths, requests in flight, targets."""

from dataclasses import dataclass
from enum import StrEnum


class Statistic(StrEnum):
    MEAN = "mean"
    P50 = "p50"
    P90 = "p90"
    P99 = "p99"


@dataclass(frozen=True, slots=True)
class Workload:
    """Mean lengths. ``concurrency`` is in flight in one replica over all its dp ranks."""

    isl_tokens: int
    osl_tokens: int
    concurrency: int
    cached_prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """Latency limits at a statistic; ``None`` is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    statistic: Statistic = Statistic.P50
