"""``sizing validate``: how the accounting does on published facts, as a table, with the bars that it must keep."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from service.cli.validate_prediction import add_prediction_arguments, validate_prediction

if TYPE_CHECKING:
    from service.cli.memory_validation import Comparison

GIB = 2**30
WORST_SHOWN = 12
EPILOG = """\
examples:
  sizing validate memory               published engine start-ups: tokens, pools, refusals against what was printed
  sizing validate prediction           published runs, each predicted from the others; minutes
  sizing validate prediction --quick   two tiers of it, with the shipped numbers

Exit code 1 when a bar of memory is missed."""


def add_validate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "what", metavar="WHAT", choices=["memory", "prediction"], help="memory: engine start-ups; prediction: speeds"
    )
    add_prediction_arguments(parser)


def validate(arguments: argparse.Namespace) -> int:
    if arguments.what == "prediction":
        return validate_prediction(arguments)
    from service.catalogue.snapshot import shipped_snapshot
    from service.cli.memory_validation import bars, compare_all

    comparisons = compare_all(shipped_snapshot())
    print("\n".join(memory_report(comparisons)))
    kept = bars(comparisons)
    print("\nBars")
    for bar in kept:
        print(f"  {'kept  ' if bar.is_kept else 'MISSED'}  {bar.title}: {bar.within} of {bar.count}")
    return 0 if all(bar.is_kept for bar in kept) else 1


def memory_report(comparisons: "Sequence[Comparison]") -> list[str]:
    computed = [each for each in comparisons if each.not_computed is None]
    return [
        f"{len(comparisons)} published start-ups, {len(computed)} of whose models are known.",
        "tokens: out of the printed pool, within 0.1 %. pool: out of flags alone, within 2 % or 0.5 GiB (dense, MoE)",
        "or 5 % (multimodal, hybrid, other engines). Cases known to disagree are counted apart, at the end.",
        "",
        *_table("family", computed, lambda each: f"{each.case.engine.name} {each.case.family}"),
        "",
        *_table("engine", computed, lambda each: f"{each.case.engine.name} {each.case.engine.version}"),
        "",
        *_table("accelerator", computed, lambda each: each.case.accelerator or "not stated"),
        "",
        *_table("held out", computed, _constants_saw_it),
        "",
        *_worst(computed),
        "",
        *_known(computed),
        "",
        *_not_computed(comparisons),
    ]


def _constants_saw_it(each: "Comparison") -> str:
    return "even (held out)" if each.case.is_held_out else "odd (constants set)"


def _table(title: str, comparisons: "Sequence[Comparison]", key: "Callable[[Comparison], str]") -> list[str]:
    rows: dict[str, list[Comparison]] = {}
    for each in comparisons:
        rows.setdefault(key(each), []).append(each)
    head = f"{title:28} {'tokens':>9} {'pool':>9} {'median':>8} {'worst':>8} {'outcome':>9}"
    lines = [head, "-" * len(head)]
    for name in sorted(rows):
        group = rows[name]
        errors = sorted(
            abs(each.pool_error) for each in group if each.pool_error is not None and not each.knows("pool")
        )
        median = f"{errors[len(errors) // 2]:8.1%}" if errors else " " * 8
        worst = f"{errors[-1]:8.1%}" if errors else " " * 8
        tokens = _share(each.tokens_within for each in group if not each.knows("tokens"))
        pools = _share(each.pool_within for each in group if not each.knows("pool"))
        outcomes = _share(each.outcome_right for each in group if not each.knows("outcome"))
        lines.append(f"{name:28} {tokens:>9} {pools:>9} {median} {worst} {outcomes:>9}".rstrip())
    return lines


def _share(verdicts: Iterable[bool | None]) -> str:
    known = [verdict for verdict in verdicts if verdict is not None]
    return f"{sum(known)}/{len(known)}" if known else "."


def _worst(comparisons: "Sequence[Comparison]") -> list[str]:
    """By how many bars a pool is off; then whatever else is wrong."""
    ranked = sorted(
        (each for each in comparisons if each.pool_error is not None and not each.knows("pool")),
        key=lambda each: -abs(each.pool_error_bytes or 0.0),
    )
    lines = ["worst pools"]
    lines += [
        f"  {_named(each)}  {_pool_difference(each)}{'' if each.pool_within else '  out of the bar'}"
        for each in ranked[:WORST_SHOWN]
    ]
    for each in comparisons:
        if each.tokens_within is False and not each.knows("tokens"):
            lines.append(f"  {_named(each)}  tokens off by {each.tokens_error:+.2%}")
        if each.outcome_right is False and not each.knows("outcome"):
            lines.append(f"  {_named(each)}  outcome: printed {'starts' if each.case.starts else 'does not start'}")
    return lines


def _known(comparisons: "Sequence[Comparison]") -> list[str]:
    lines = ["known to disagree"]
    for each in comparisons:
        for figure, reason in each.case.known_difference.items():
            size = {"pool": _pool_difference(each), "tokens": f"{each.tokens_error or 0:+.2%}", "outcome": ""}[figure]
            lines.append(f"  {_named(each)}  {figure} {size}: {reason}")
    return lines


def _not_computed(comparisons: "Sequence[Comparison]") -> list[str]:
    left_out = [each for each in comparisons if each.not_computed is not None]
    return [
        f"not computed: {len(left_out)}",
        *(f"  {_named(each)}  {(each.not_computed or '').split(';')[0]}" for each in left_out),
    ]


def _pool_difference(each: "Comparison") -> str:
    if each.pool_error_bytes is None or each.pool_error is None:
        return "not compared"
    return f"{each.pool_error_bytes / GIB:+.2f} GiB ({each.pool_error:+.1%})"


def _named(each: "Comparison") -> str:
    case = each.case
    return f"{case.id}  {case.engine.name} {case.engine.version}  {case.model or '?'} on {case.accelerator or '?'}"
