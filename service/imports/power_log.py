"""Power over time, summed over the accelerators of a machine.

Power is summed over the accelerators at each time and then averaged over time; averaging each accelerator first would
weigh those that were read more often.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from service.imports.run import Power, PowerScope


@dataclass(frozen=True, slots=True)
class PowerLog:
    """``times_s`` count from 1970-01-01 on the clock of the log: of UTC if ``zone_known``, else of an unknown zone.

    A snapshot that names no time has ``times_s`` of ``None``. ``busy`` is whether any accelerator was at work.
    """

    source: str
    scope: PowerScope
    accelerator_names: tuple[str, ...]
    accelerator_count: int
    totals_w: Sequence[float]
    times_s: Sequence[float] | None = None
    busy: Sequence[bool] | None = None
    zone_known: bool = False
    die_count: int | None = None
    energy_counters_j: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def mean_w(self) -> float | None:
        return sum(self.totals_w) / len(self.totals_w) if self.totals_w else None

    @property
    def busy_mean_w(self) -> float | None:
        if self.busy is None:
            return None
        at_work = [watt for watt, busy in zip(self.totals_w, self.busy, strict=True) if busy]
        return sum(at_work) / len(at_work) if at_work else None

    @property
    def interval_s(self) -> float | None:
        """Mean time between two samples."""
        if self.times_s is None or len(self.times_s) < 2:
            return None
        return (self.times_s[-1] - self.times_s[0]) / (len(self.times_s) - 1)

    @property
    def energy_j(self) -> float | None:
        """The area under the power, by trapezoids.

        >>> log = PowerLog("meter", PowerScope.BOARD, (), 1, [100.0, 300.0], [0.0, 2.0])
        >>> log.energy_j  # (100 + 300) / 2 W over 2 s
        400.0
        """
        if self.times_s is None or len(self.times_s) < 2:
            return None
        pairs = zip(self.times_s, self.times_s[1:], self.totals_w, self.totals_w[1:], strict=False)
        return sum((later - earlier) * (before + after) / 2 for earlier, later, before, after in pairs)

    def between(self, *, start_s: float, end_s: float) -> "PowerLog":
        """The samples within the time, both ends included; none if the log has no times."""
        if self.times_s is None:
            return replace(self, totals_w=(), busy=None)
        low, high = bisect_left(self.times_s, start_s), bisect_right(self.times_s, end_s)
        return replace(
            self,
            times_s=self.times_s[low:high],
            totals_w=self.totals_w[low:high],
            busy=None if self.busy is None else self.busy[low:high],
        )

    def power(self, *, cut_to_run: bool) -> Power | None:
        """What a run keeps of it, or ``None`` without a sample."""
        if self.mean_w is None:
            return None
        return Power(
            mean_w=self.mean_w,
            scope=self.scope,
            accelerator_count=self.accelerator_count,
            sample_count=len(self.totals_w),
            energy_j=self.energy_j,
            busy_mean_w=self.busy_mean_w,
            source=self.source,
            cut_to_run=cut_to_run,
        )
