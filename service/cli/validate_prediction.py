"""``sizing validate prediction``: every published run predicted from the others, as tables and a plot."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from service.calibration.cross_validation import Missed
    from service.catalogue.benchmark_evidence import Measurement

QUICK_TIERS = ("series", "accelerator")
TIERS = ("series", "campaign", "pair", "accelerator", "model", "model-engine", "vendor")
UPLOADS = "uploads"  # asked for like a tier


def add_prediction_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="two tiers, with the shipped numbers (no SciPy needed)")
    parser.add_argument(
        "--tier", dest="tiers", action="append", choices=(*TIERS, UPLOADS), help="only this tier (may be repeated)"
    )
    parser.add_argument("--without-refit", action="store_true", help="the shipped numbers in every fold: optimistic")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a calibration plot")


def validate_prediction(arguments: argparse.Namespace) -> int:
    """Prints what is left out, how far off the answers are, and how often their intervals hold."""
    from service.calibration.cross_validation import cross_validate
    from service.calibration.folds import Tier
    from service.calibration.noise_floor import noise_table
    from service.calibration.plot import calibration_svg
    from service.calibration.tables import coverage_table, tier_table, upload_table
    from service.calibration.uploads import value_of_uploads
    from service.catalogue.benchmark_evidence import measurements
    from service.catalogue.benchmark_facts import published_runs
    from service.catalogue.snapshot import shipped_snapshot

    refits = not (arguments.quick or arguments.without_refit)
    names = arguments.tiers or (QUICK_TIERS if arguments.quick else (*TIERS, UPLOADS))
    found = measurements(published_runs(), shipped_snapshot())
    missed = cross_validate(
        found.usable,
        [Tier(name) for name in names if name != UPLOADS],
        refits=refits,
        progress=lambda said: print(said, file=sys.stderr, flush=True),
    )
    print(f"{len(found.usable)} measured numbers; the physics " + _fitted(refits))
    if missed:
        print(tier_table(missed))
        for title, key in _breakdowns():
            print(f"\nServing TPOT by {title}")
            print("\n".join(_breakdown(missed, key)))
        print("\nCoverage by hardware group")
        print(coverage_table(missed))
    if not arguments.tiers and not arguments.quick:
        print("\n".join(_widths(missed)))
    if UPLOADS in names:
        print("\nValue of one upload: accelerators left out, and runs of each combination given back")
        print(upload_table(value_of_uploads(found.usable, refits=refits)))
    print("\nNoise floor: the same point measured more than once, and under several releases of an engine")
    print(noise_table(found.usable))
    print("\nLeft out: " + "; ".join(f"{count} {why}" for why, count in _most(found.left_out)))
    _print_disaggregated(found.usable, refits=refits)
    if arguments.plot:
        arguments.plot.write_text(calibration_svg(missed), encoding="utf-8")
    return 0


def _widths(missed: "Sequence[Missed]") -> list[str]:
    """What the shipped factors would be if they were set on these errors."""
    from service.calibration.folds import TUNED_TIERS
    from service.calibration.widths import unseen_widths, width_factors
    from service.sizing.evidence import WIDTH_FACTORS

    asked_for = width_factors([each for each in missed if each.tier in TUNED_TIERS])
    lines = ["\nFactors on the spread by distance from evidence: shipped, and what these errors ask for"]
    lines += [f"{phase:14} {WIDTH_FACTORS[phase]}  {factors}" for phase, factors in asked_for.items()]
    lines.append("\nTimes wider where no run of the hardware group is stored (no name: all groups together)")
    return lines + [
        f"{group or '-':38} {phase:14} {wider:g}" for (group, phase), wider in unseen_widths(missed).items()
    ]


def _print_disaggregated(rows: "Sequence[Measurement]", *, refits: bool) -> None:
    from service.calibration.disaggregated import cross_validate_disaggregated, disaggregated_table, not_modelled
    from service.catalogue.benchmark_facts import published_runs
    from service.catalogue.snapshot import shipped_snapshot

    missed = cross_validate_disaggregated(
        rows, refits=refits, progress=lambda said: print(said, file=sys.stderr, flush=True)
    )
    print("\nDisaggregated: prefill and decode on workers of their own, without a limit on the decode batch")
    print(disaggregated_table(missed))
    reasons = _most(not_modelled(published_runs(), shipped_snapshot()))
    print("\nDisaggregated runs that cannot be modelled: " + "; ".join(f"{count} {why}" for why, count in reasons))


def _fitted(refits: bool) -> str:
    if refits:
        return "is refitted without each fold"
    return "keeps the shipped numbers, which have seen every run: errors are optimistic"


def _breakdowns() -> "tuple[tuple[str, Callable[[Missed], str]], ...]":
    return (
        ("accelerator", lambda each: each.accelerator),
        ("engine", lambda each: each.engine),
        ("weight class", lambda each: each.weights),
    )


def _breakdown(missed: "Sequence[Missed]", key: "Callable[[Missed], str]") -> list[str]:
    from service.calibration.tables import HEADER, line
    from service.sizing.run_terms import Phase

    lines = [HEADER]
    for tier in dict.fromkeys(each.tier for each in missed):
        of_tier = [each for each in missed if each.tier is tier and each.phase is Phase.SERVING]
        names = sorted({key(each) for each in of_tier})
        lines += [line(tier, name or "not stated", [each for each in of_tier if key(each) == name]) for name in names]
    return lines


def _most(left_out: "Mapping[str, int]") -> "list[tuple[str, int]]":
    return sorted(left_out.items(), key=lambda each: (-each[1], each[0]))[:20]
