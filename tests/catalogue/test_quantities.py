"""Published quantities become base units, and nonsense is refused."""

from typing import Any

import pytest

from service.catalogue.quantities import Unit, read_quantity
from service.errors import Invalid


@pytest.mark.parametrize(
    ("written", "unit", "value"),
    [
        ("13.4 TB", Unit.BYTE, 13.4e12),
        ("80 GB", Unit.BYTE, 80 * 10**9),
        ("80GB", Unit.BYTE, 80 * 10**9),
        ("192 GiB", Unit.BYTE, 192 * 2**30),
        ("189,471 MiB", Unit.BYTE, 189_471 * 2**20),
        ("576 TB/s", Unit.BYTE_PER_S, 576e12),
        ("819 GBps", Unit.BYTE_PER_S, 819e9),
        ("820 GiB/sec", Unit.BYTE_PER_S, 820 * 2**30),
        ("400 Gb/s", Unit.BYTE_PER_S, 400e9 / 8),
        ("1.6 Tb/s", Unit.BYTE_PER_S, 1.6e12 / 8),
        ("1,440 PFLOPS", Unit.FLOP_PER_S, 1.44e18),
        ("720 POPS", Unit.FLOP_PER_S, 720e15),
        ("307 TOPS", Unit.FLOP_PER_S, 307e12),
        ("1.4 EFLOPS", Unit.FLOP_PER_S, 1.4e18),
        ("1,200 W", Unit.WATT, 1200),
        ("120 kW", Unit.WATT, 120_000),
        (8e12, Unit.BYTE_PER_S, 8e12),
        (80_000_000_000, Unit.BYTE, 80e9),
    ],
)
def test_a_published_quantity_is_read_into_base_units(written: Any, unit: Any, value: Any) -> None:
    assert read_quantity(written, unit).value == value


@pytest.mark.parametrize(
    ("written", "last_digit"), [("13.4 TB", 0.1e12), ("20 TB", 1e12), ("1,440 GB", 1e9), ("2.039 TB", 1e9), (20e12, 0)]
)
def test_the_last_printed_digit_is_known(written: Any, last_digit: Any) -> None:
    assert read_quantity(written, Unit.BYTE).last_digit == pytest.approx(last_digit)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "80",
        "GB",
        "80 gb",
        "80 Gb",  # bits
        "80 GB/s",  # a bandwidth
        "80 TFLOPS",
        "80 XB",
        "13,4 TB",  # a decimal comma
        "1,44 TB",
        "1,440,0 TB",
        "1.2.3 TB",
        "-80 GB",
        "+80 GB",
        "0 GB",
        "0.0 TB",
        "8e10 GB",
        "inf GB",
        "nan GB",
        "80 GB HBM3",
        " 80 GB",
        "80  GB",
        "80 GB\n",
        "٨٠ GB",
        "9" * 30 + " GB",
        "9" * 10_000 + " GB",
        0,
        -1.0,
        1e30,
        5e-324,  # a quotient by it would overflow
        "0.00001 B",
        float("inf"),
        float("nan"),
    ],
)
def test_what_is_not_one_positive_quantity_of_the_unit_is_refused(written: Any) -> None:
    with pytest.raises(Invalid):
        read_quantity(written, Unit.BYTE)


def test_binary_prefixes_are_for_bytes_alone() -> None:
    with pytest.raises(Invalid):
        read_quantity("80 GiFLOPS", Unit.FLOP_PER_S)
