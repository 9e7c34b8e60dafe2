"""When a run was measured: a time that exists, that is not still to come, and that has computers."""

from datetime import UTC, date, datetime, time, timedelta

from service.imports.fields import EARLIEST_YEAR

CLOCK_SLACK = timedelta(days=1)  # clocks are set wrong, and readings without a zone may be of any


def is_to_come(moment: datetime) -> bool:
    return moment > datetime.now(UTC) + CLOCK_SLACK


def existing_day(text: str) -> str:
    """A day, or a month or year by its first day.

    >>> existing_day("2026-12"), existing_day("2024-02-29")
    ('2026-12', '2024-02-29')
    >>> existing_day("2026-13")
    Traceback (most recent call last):
    ValueError: the calendar has no such day: write it as 2026-12-01, 2026-12 or 2026
    """
    try:
        _first_day(text)
    except ValueError:
        raise ValueError("the calendar has no such day: write it as 2026-12-01, 2026-12 or 2026") from None
    return text


def measured_day(text: str) -> str:
    """An existing day, month or year on which a run can have been measured."""
    measured_at(datetime.combine(_first_day(text), time(), UTC))
    return text


def _first_day(text: str) -> date:
    """Of a year or a month, or the day itself."""
    return date.fromisoformat(f"{text}-01-01"[:10])


def measured_at(moment: datetime) -> datetime:
    """A moment at which a run can have been measured."""
    if is_to_come(moment):
        raise ValueError("it lies in the future: say when the run was measured")
    if moment.year < EARLIEST_YEAR:
        raise ValueError(f"it lies before {EARLIEST_YEAR}: say when the run was measured")
    return moment
