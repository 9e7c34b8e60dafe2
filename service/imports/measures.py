"""Collects the metrics of one run: each by meaning, once, in base units, and only where something was measured."""

import re
from math import isfinite

from service.imports.fields import Fields
from service.imports.report import Refused
from service.imports.run import MAX, MEAN, MIN, OVERALL, P50, STD, Meaning, Metric, Statistic, percentile

MILLISECOND_S = 1e-3
NANOSECOND_S = 1e-9
MOST_METRICS = 500
WORDS = {
    "mean": MEAN,
    "avg": MEAN,
    "average": MEAN,
    "median": P50,
    "std": STD,
    "stddev": STD,
    "std_dev": STD,
    "min": MIN,
    "minimum": MIN,
    "max": MAX,
    "maximum": MAX,
}
PERCENTILE_NAME = re.compile(r"p(\d{1,2}(?:\.\d+)?)", re.ASCII)


def statistic_named(word: str) -> Statistic | None:
    """The statistic that tools call so.

    >>> str(statistic_named("median")), str(statistic_named("p99.9")), statistic_named("count")
    ('p50', 'p99.9', None)
    """
    if word in WORDS:
        return WORDS[word]
    match = PERCENTILE_NAME.fullmatch(word)
    return percentile(float(match.group(1))) if match else None


class Measures:
    """A value that is zero or negative was not measured, except a spread; the first key to name a statistic wins."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[Meaning, Statistic], Metric] = {}
        self.not_finite: list[str] = []

    def add(
        self, meaning: Meaning, statistic: Statistic, value: float | None, source_key: str, *, scale: float = 1.0
    ) -> None:
        if value is None:
            return
        if not isfinite(value):
            self.not_finite.append(source_key)
            return
        if value < 0 or (value == 0 and statistic is not STD):
            return
        if len(self._metrics) >= MOST_METRICS:
            raise Refused(f"one run has more than {MOST_METRICS} statistics")
        self._metrics.setdefault((meaning, statistic), Metric(meaning, statistic, value * scale, source_key))

    def take(
        self, fields: Fields, key: str, meaning: Meaning, statistic: Statistic = OVERALL, *, scale: float = 1.0
    ) -> None:
        """Adds the field of that key, where there is one."""
        self.add(meaning, statistic, fields.raw_number(key), key, scale=scale)

    def take_all(self, fields: Fields, prefix: str, meaning: Meaning, *, scale: float = 1.0) -> None:
        """Adds each key of the object that names a statistic."""
        for word in fields:
            statistic = statistic_named(word)
            if statistic is not None:
                self.add(meaning, statistic, fields.raw_number(word), f"{prefix}.{word}", scale=scale)

    def value(self, meaning: Meaning, statistic: Statistic) -> float | None:
        metric = self._metrics.get((meaning, statistic))
        return metric.value if metric else None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(metric for metric in self._metrics.values() if self._has_location(metric))

    def _has_location(self, metric: Metric) -> bool:
        """A spread of zero beside no mean is the empty column of a tool that measured nothing."""
        if metric.statistic is not STD or metric.value > 0:
            return True
        return any(each.meaning is metric.meaning and each.statistic is not STD for each in self._metrics.values())
