"""Reads a published quantity such as "13.4 TB" into base units: the only home of prefixes.

Prefixes are decimal (TB = 10**12 bytes) unless the publisher wrote a binary one (GiB = 2**30 bytes). Letters
count: ``Gb`` are bits and ``GB`` bytes. Bandwidths may be written per second in any of the usual ways
(``GB/s``, ``GBps``, ``GiB/sec``), operations as ``PFLOPS``, ``TOPS`` or ``TFLOP/s``.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from math import isfinite

from service.errors import Invalid

MAXIMUM_TEXT_LENGTH = 40
MINIMUM_VALUE = 1e-3  # below any figure, and far enough from 0 that no quotient of two figures overflows
MAXIMUM_VALUE = 1e27  # bytes, FLOP/s or watts: above any machine, below any float trouble


class Unit(StrEnum):
    """The base units in which the catalogue keeps figures."""

    BYTE = "bytes"
    BYTE_PER_S = "bytes per second"
    FLOP_PER_S = "FLOP per second"
    WATT = "watts"


DECIMAL_PREFIXES = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_PREFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}

# What may follow the prefix, and how many base units it is.
UNIT_WORDS = {
    Unit.BYTE: {"B": Decimal(1)},
    Unit.BYTE_PER_S: {
        **dict.fromkeys(("B/s", "Bps", "B/sec"), Decimal(1)),
        **dict.fromkeys(("b/s", "bps", "b/sec", "bit/s"), Decimal(1) / 8),
    },
    Unit.FLOP_PER_S: dict.fromkeys(("FLOPS", "FLOP/s", "OPS", "OP/s"), Decimal(1)),
    Unit.WATT: {"W": Decimal(1)},
}


def _scales(unit: Unit) -> dict[str, Decimal]:
    """Base units in one of each written unit; binary prefixes are for bytes alone."""
    prefixes = {prefix: Decimal(10) ** power for prefix, power in DECIMAL_PREFIXES.items()}
    if unit in (Unit.BYTE, Unit.BYTE_PER_S):
        prefixes |= {prefix: Decimal(2) ** power for prefix, power in BINARY_PREFIXES.items()}
    return {
        prefix + word: scale * size for prefix, scale in prefixes.items() for word, size in UNIT_WORDS[unit].items()
    }


SCALES = {unit: _scales(unit) for unit in Unit}

QUANTITY = re.compile(r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[A-Za-z/]+)")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value in base units, and what one step of the last printed digit is worth (0 for a bare number)."""

    value: float
    last_digit: float = 0.0


def read_quantity(written: str | float, unit: Unit) -> Quantity:
    """The quantity in base units; a bare number is in base units already.

    Raises ``Invalid`` for anything that is not one positive number followed by a unit of that kind.

    >>> read_quantity("13.4 TB", Unit.BYTE)
    Quantity(value=13400000000000.0, last_digit=100000000000.0)
    >>> read_quantity("192 GiB", Unit.BYTE).value == 192 * 2**30
    True
    >>> read_quantity("400 Gb/s", Unit.BYTE_PER_S).value
    50000000000.0
    >>> read_quantity("1,440 PFLOPS", Unit.FLOP_PER_S).value
    1.44e+18
    """
    if isinstance(written, str):
        return _read_text(written, unit)
    if not isfinite(written) or not MINIMUM_VALUE <= written < MAXIMUM_VALUE:
        raise Invalid(f"{written!r} is not a possible, positive number of {unit}")
    return Quantity(float(written))


def _read_text(text: str, unit: Unit) -> Quantity:
    match = QUANTITY.fullmatch(text) if len(text) <= MAXIMUM_TEXT_LENGTH else None
    if match is None:
        raise Invalid(f"{text[:80]!r} is not a number followed by a unit, such as {_example(unit)}")
    scale = SCALES[unit].get(match["unit"])
    if scale is None:
        raise Invalid(f"{match['unit']!r} is not a unit of {unit}; written as in {_example(unit)}")
    number = Decimal(match["number"].replace(",", ""))
    exponent = number.as_tuple().exponent
    last_digit = scale * Decimal(10) ** (exponent if isinstance(exponent, int) else 0)
    value = float(number * scale)
    if not MINIMUM_VALUE <= value < MAXIMUM_VALUE:
        raise Invalid(f"{text!r} is not a possible number of {unit}")
    return Quantity(value, float(last_digit))


def _example(unit: Unit) -> str:
    return {
        Unit.BYTE: '"13.4 TB" or "192 GiB"',
        Unit.BYTE_PER_S: '"8 TB/s" or "400 Gb/s"',
        Unit.FLOP_PER_S: '"720 PFLOPS" or "1,466 TOPS"',
        Unit.WATT: '"1,200 W" or "120 kW"',
    }[unit]
