"""``sizing calibrate``: refits the numbers of the physics to the shipped runs, beside the ones that are shipped."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import sys
from typing import TYPE_CHECKING

from service.cli.validate_prediction import TIERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.calibration.fit import Fit
    from service.catalogue.benchmark_evidence import Measurement

EPILOG = """\
Changes nothing: the shipped numbers are in service/sizing/parameters.py. The second table predicts every run from the
others, with the shipped numbers and with the refitted ones, and says what has become worse. Both have seen every run:
its errors are optimistic. `sizing validate prediction` refits without each fold. Needs the extra "calibration"."""


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--tier", dest="tiers", action="append", choices=TIERS, help="the effect on this tier alone (may be repeated)"
    )
    parser.add_argument("--numbers-only", action="store_true", help="leave out the effect on the tiers")


def calibrate(arguments: argparse.Namespace) -> int:
    """Prints the refitted numbers with their standard errors, then what they do to the predictions."""
    from service.calibration.fit import Sample, refit
    from service.catalogue.benchmark_evidence import measurements
    from service.catalogue.benchmark_facts import published_runs
    from service.catalogue.snapshot import shipped_snapshot

    usable = measurements(published_runs(), shipped_snapshot()).usable
    found = refit(Sample.of(usable))
    print(f"{len(usable)} measured numbers; s.e. is of ln(value)")
    print(_numbers_table(found))
    if not arguments.numbers_only:
        print("\nEffect on the tiers")
        print(_effect_table(usable, found, arguments.tiers or TIERS))
    return 0


def _numbers_table(found: "Fit") -> str:
    from service.sizing.parameters import FITTED

    lines = [f"{'number':36} {'shipped':>10} {'s.e.':>6} {'refitted':>10} {'s.e.':>6}  meaning"]
    for name, shipped in FITTED.items():
        errors = f"{found.standard_errors[name]:6.2f}"
        numbers = f"{shipped.value:10.4g} {shipped.standard_error:6.2f} {found.numbers[name]:10.4g} {errors}"
        lines.append(f"{name:36} {numbers}  {shipped.meaning}")
    return "\n".join(lines)


def _effect_table(rows: "Sequence[Measurement]", found: "Fit", names: "Sequence[str]") -> str:
    from service.calibration.cross_validation import cross_validate
    from service.calibration.folds import Tier
    from service.calibration.tables import comparison_table
    from service.sizing.run_time import FITTED_VALUES

    shipped, refitted = (
        cross_validate(
            rows,
            [Tier(name) for name in names],
            refits=False,
            numbers=numbers,
            progress=lambda said: print(said, file=sys.stderr, flush=True),
        )
        for numbers in (FITTED_VALUES, found.numbers)
    )
    return comparison_table(shipped, refitted)
