"""The accounting of memory against published start-ups; ``sizing validate memory`` prints the same as a table."""

from functools import cache

import pytest

from service.catalogue.memory_cases import load_memory_cases
from service.catalogue.snapshot import shipped_snapshot
from service.cli import main
from service.cli.memory_validation import Comparison, bars, compare_all


@cache
def comparisons() -> list[Comparison]:
    return compare_all(shipped_snapshot())


def test_every_published_start_up_is_carried_with_its_source() -> None:
    cases = load_memory_cases().cases
    assert len(cases) == 131
    assert len({case.id for case in cases}) == 131
    assert all(case.source.url.startswith("https://") for case in cases)


def test_tokens_out_of_a_printed_pool_are_those_that_were_printed() -> None:
    tokens = next(bar for bar in bars(comparisons()) if bar.title == "tokens out of the printed pool")
    assert tokens.within == tokens.count >= 80


def test_all_bars_are_kept() -> None:
    missed = [bar for bar in bars(comparisons()) if not bar.is_kept]
    assert not missed


def test_the_controlled_runs_are_within_two_percent_or_half_a_gib_on_both_halves() -> None:
    controlled = [each for each in comparisons() if each.case.engine.version == "0.19.0" and each.pool_error]
    text = [each for each in controlled if each.case.family in ("dense", "moe") and not each.knows("pool")]
    odd, even = ([each for each in text if each.case.is_held_out is held_out] for held_out in (False, True))
    assert len(odd) >= 15
    assert len(even) >= 15
    assert all(each.pool_within for each in text)


def test_what_cannot_agree_says_why_and_what_cannot_be_computed_says_so() -> None:
    for each in comparisons():
        assert all(len(reason) > 5 for reason in each.case.known_difference.values())
        if each.not_computed is not None:
            assert each.tokens_error is None
            assert each.pool_error is None
    assert sum(1 for each in comparisons() if each.not_computed is not None) <= 20


def test_the_command_prints_the_table_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "memory"]) == 0
    printed = capsys.readouterr().out
    for heading in ("family", "engine", "accelerator", "worst pools", "known to disagree", "not computed", "Bars"):
        assert heading in printed
