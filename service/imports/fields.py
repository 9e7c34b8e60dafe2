"""Reads the fields of one record, refusing by name what is of the wrong kind; absent, null and "N/A" are ``None``."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import inf, isfinite, nan
from typing import Any

from service.imports.json_stream import Array
from service.imports.report import Refused

SAYS_NOTHING = frozenset({"", "n/a", "none", "null", "[n/a]", "[not supported]", "not supported", "-"})
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = {"inf": inf, "infinity": inf, "+inf": inf, "-inf": -inf, "-infinity": -inf, "nan": nan}
LARGEST = 1e18
LONGEST_S = 1e9
LATEST_EPOCH_S = 7e9  # in 2191
EARLIEST_YEAR = 1990  # of a measurement by a computer


def time_in(text: str, layout: str | None = None) -> datetime | None:
    """A time of a plausible year; in ISO 8601 unless the layout is stated.

    >>> time_in("20261201-195728", "%Y%m%d-%H%M%S"), time_in("0001-01-01")
    (datetime.datetime(2026, 12, 1, 19, 57, 28), None)
    """
    try:
        # Tools write clocks without a zone, and the caller is asked for it.
        time = datetime.strptime(text, layout) if layout else datetime.fromisoformat(text)  # noqa: DTZ007 - as said
    except ValueError:
        return None
    return time if EARLIEST_YEAR <= time.year < 2190 else None


def number_in(text: str) -> float | None:
    """A number written as text, as CSV and command lines have it; thousands may be parted by commas.

    >>> number_in("1,234.50"), number_in("inf"), number_in("h200")
    (1234.5, inf, None)
    """
    stripped = text.strip()
    if stripped.lower() in NOT_FINITE:
        return NOT_FINITE[stripped.lower()]
    if "," in stripped and re.fullmatch(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", stripped, re.ASCII):
        stripped = stripped.replace(",", "")
    return float(stripped) if len(stripped) < 64 and NUMBER.fullmatch(stripped) else None


class Fields:
    """One record of a file, with the place where it stands."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise Refused("an object with the tool's keys is expected here", where=where)
        self.values: Mapping[str, Any] = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def place(self, key: str) -> str:
        return f"{self.where}, {key}" if self.where else key

    def refuse(self, key: str, expected: str) -> Refused:
        shown = str(self.values.get(key))[:60]
        return Refused(f"{expected} is expected, not {shown!r}", where=self.place(key))

    def raw_number(self, key: str) -> float | None:
        """A number that may be infinite or NaN."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool):
            raise self.refuse(key, "a number")
        if isinstance(value, int | float):
            return self._ordinary(key, float(value))
        if isinstance(value, str):
            if value.strip().lower() in SAYS_NOTHING:
                return None
            if (read := number_in(value)) is not None:
                return self._ordinary(key, read)
        raise self.refuse(key, "a number")

    def number(self, key: str) -> float | None:
        """A finite number; one that is not finite says nothing."""
        value = self.raw_number(key)
        return value if value is not None and isfinite(value) else None

    def _ordinary(self, key: str, value: float) -> float:
        if isfinite(value) and abs(value) > LARGEST:
            raise self.refuse(key, "a number of ordinary size")
        return value

    def positive(self, key: str) -> float | None:
        """A number above zero. Zero is what tools write when they have measured nothing."""
        value = self.number(key)
        return value if value is not None and value > 0 else None

    def seconds(self, key: str, *, scale: float = 1.0) -> float | None:
        """A duration above zero."""
        value = self.positive(key)
        if value is not None and value * scale > LONGEST_S:
            raise self.refuse(key, "a duration of ordinary length")
        return value * scale if value is not None else None

    def epoch_time(self, key: str) -> datetime | None:
        """A time given in seconds since 1970."""
        seconds = self.positive(key)
        if seconds is not None and seconds > LATEST_EPOCH_S:
            raise self.refuse(key, "a time in seconds since 1970")
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None

    def iso_time(self, key: str) -> datetime | None:
        """A time in ISO 8601, with a zone or without."""
        text = self.text(key)
        if text is None:
            return None
        time = time_in(text)
        if time is None:
            raise self.refuse(key, "an ISO 8601 time")
        return time

    def count(self, key: str) -> int | None:
        value = self.number(key)
        if value is None:
            return None
        if value < 0 or value != int(value):
            raise self.refuse(key, "a whole number that is not negative")
        return int(value)

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise self.refuse(key, "a text")
        stripped = str(value).strip()
        return None if stripped.lower() in SAYS_NOTHING else stripped[:500]

    def truth(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if str(value).strip().lower() in known:
            return known[str(value).strip().lower()]
        raise self.refuse(key, "true or false")

    def child(self, *keys: str) -> "Fields":
        """The object below these keys; an absent one is empty."""
        here = self
        for key in keys:
            below = here.values.get(key)
            here = Fields({} if below is None else below, here.place(key))
        return here

    def children(self, key: str) -> list["Fields"]:
        """The objects of an array; an absent one is empty."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, Array):
            raise self.refuse(key, "an array")
        return [Fields(item, f"{self.place(key)}[{i}]") for i, item in enumerate(value.items)]

    def array(self, key: str) -> Array | None:
        value = self.values.get(key)
        return value if isinstance(value, Array) else None
