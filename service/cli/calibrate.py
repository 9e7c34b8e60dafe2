"""``sizing calibrate``: refits the numbers of the physics to the shipped runs, beside the ones that are shipped."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse

EPILOG = """\
Changes nothing: the shipped numbers are in service/sizing/parameters.py. Before new ones replace them,
`sizing validate prediction --without-refit` says whether any tier has become worse."""


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG


def calibrate(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - it takes none
    from service.calibration.fit import Sample, refit
    from service.catalogue.benchmark_evidence import measurements
    from service.catalogue.benchmark_facts import published_runs
    from service.catalogue.snapshot import shipped_snapshot
    from service.sizing.parameters import FITTED

    usable = measurements(published_runs(), shipped_snapshot()).usable
    found = refit(Sample.of(usable))
    print(f"{len(usable)} measured numbers; s.e. is of ln(value)")
    print(f"{'number':32} {'shipped':>10} {'refitted':>10} {'s.e.':>6}  meaning")
    for name, shipped in FITTED.items():
        error = found.standard_errors.get(name)
        stated = f"{error:6.2f}" if error is not None else "     ."
        print(f"{name:32} {shipped.value:10.4g} {found.numbers[name]:10.4g} {stated}  {shipped.meaning}")
    return 0
