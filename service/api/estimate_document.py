"""An estimate as answers write it."""

from typing import Any

from service.sizing.estimate import Estimate


def estimate(of: Estimate | None) -> dict[str, Any] | None:
    if of is None:
        return None
    value, low, high, coverage_fraction, basis = of
    return {
        "value": value,
        "low": low,
        "high": high,
        "coverage_fraction": coverage_fraction,
        "basis": basis._value_,
    }
