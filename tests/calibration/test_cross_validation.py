from dataclasses import replace

import numpy as np
import pytest

from service.calibration.cross_validation import Missed, cross_validate
from service.calibration.folds import Tier, folds
from service.calibration.noise_floor import noise_floors, noise_table
from service.calibration.plot import calibration_svg, held
from service.calibration.tables import comparison_table, coverage_table, summary, tier_table
from service.calibration.uploads import combinations, given_rows, value_of_uploads
from service.calibration.widths import unseen_widths, width_factors
from service.catalogue.benchmark_evidence import Measurement, measurements
from service.catalogue.benchmark_facts import published_runs
from service.sizing.run_terms import Phase
from tests.sizing.examples import shipped

NORMAL_QUANTILE_90 = 1.2816


@pytest.fixture(scope="module")
def rows() -> tuple[Measurement, ...]:
    return measurements(published_runs(), shipped()).usable


def missed(error: float, factor: float = 1.2, campaign: str = "one", sd: float = 0.1) -> Missed:
    return Missed(
        tier=Tier.PAIR,
        fold="fold",
        phase=Phase.SERVING,
        campaign=campaign,
        accelerator="h100-sxm",
        engine="vLLM",
        weights="8",
        hardware_group="NVIDIA data centre",
        error=error,
        physics_error=2 * error,
        sd=sd,
        distance=0.5,
        factor=factor,
    )


def test_five_folds_of_series_leave_each_row_out_once(rows: tuple[Measurement, ...]) -> None:
    left_out = np.sum([fold.left_out for fold in folds(Tier.SERIES, rows)], axis=0)
    assert left_out.tolist() == [1] * len(rows)


def test_a_pair_is_left_out_only_where_both_are_known_elsewhere(rows: tuple[Measurement, ...]) -> None:
    for fold in folds(Tier.PAIR, rows):
        out = [row.configuration for row, is_out in zip(rows, fold.left_out, strict=True) if is_out]
        rest = [row.configuration for row, is_out in zip(rows, fold.left_out, strict=True) if not is_out]
        assert len({(each.accelerator, each.architecture) for each in out}) == 1
        assert any(each.accelerator == out[0].accelerator for each in rest)
        assert any(each.architecture == out[0].architecture for each in rest)


def test_models_of_one_shape_are_left_out_together(rows: tuple[Measurement, ...]) -> None:
    fold = next(fold for fold in folds(Tier.MODEL, rows) if "Llama 3.1 70B" in fold.name)
    names = {row.setup.model.slug for row, is_out in zip(rows, fold.left_out, strict=True) if is_out}
    assert {"llama-3.1-70b-instruct", "llama-3-70b-instruct"} <= names


def test_a_summary_counts_rows_and_campaigns_apart() -> None:
    # campaign "one": two of three rows inside ln 1.2 = 0.18; campaign "two": its only row outside
    found = summary([missed(0.1), missed(0.15), missed(0.5), missed(0.4, campaign="two")])
    assert found.row_coverage_fraction == 2 / 4
    assert (found.campaign_coverage_fraction, found.campaign_count) == (1 / 2, 2)
    assert found.median_error == pytest.approx((np.expm1(0.15) + np.expm1(0.4)) / 2)


def test_widths_grow_until_four_fifths_of_rows_and_campaigns_are_inside() -> None:
    # ten campaigns of one row that miss by 1 to 10 tenths: 8 of 10 lie within 0.8, that is 0.8 / (1.2816 * 0.1) widths,
    # more than the largest factor that is allowed
    rows = [missed(number / 10, campaign=str(number)) for number in range(1, 11)]
    assert width_factors(rows)[Phase.SERVING][2] == 2.5
    mild = [replace(each, sd=0.8 / NORMAL_QUANTILE_90) for each in rows]
    assert width_factors(mild)[Phase.SERVING][2] == pytest.approx(1.0)


def test_a_group_that_was_never_stored_needs_as_much_wider_intervals_as_it_missed() -> None:
    # five campaigns of one row that miss by 1 to 5 tenths, with half-widths of 0.2: four of five lie within 0.4 / 0.2
    rows = [
        replace(missed(number / 10, factor=float(np.exp(0.2)), campaign=str(number)), tier=Tier.VENDOR)
        for number in range(1, 6)
    ]
    assert unseen_widths(rows) == {("", Phase.SERVING): 2.0, ("NVIDIA data centre", Phase.SERVING): 2.0}
    assert unseen_widths(rows[:3]).keys() == {("", Phase.SERVING)}  # too few campaigns for a number of their own
    assert "| NVIDIA data centre | serving | 1 |" in coverage_table([missed(0.1), rows[0]])


def test_the_noise_floor_is_how_far_repeats_and_releases_are_apart(rows: tuple[Measurement, ...]) -> None:
    row = next(row for row in rows if row.configuration.phase is Phase.SERVING)
    newer = replace(row.configuration, engine_version="another")
    times = [(row.configuration, 1.0), (replace(row.configuration, campaign="a colleague"), 1.1), (newer, 1.26)]
    repeated = [replace(row, configuration=configuration, value_s=time_s) for configuration, time_s in times]
    # 1.1 / 1.0 within a release; the middle of those, 1.05, against 1.26 under the other
    (floor,) = noise_floors(repeated)
    assert floor.repeats_differ_fraction == pytest.approx(0.1)
    assert floor.releases_differ_fraction == pytest.approx(0.2)
    assert (floor.repeated_count, floor.release_count) == (1, 1)
    assert "| serving | 1 | 10.0 | 1 | 20.0 |" in noise_table(repeated)


def test_the_plot_shows_how_often_intervals_hold() -> None:
    # half-widths of ln 1.2 for 80 %: three of four errors inside
    rows = [missed(0.0), missed(0.1), missed(-0.15), missed(0.3)]
    assert held(rows, 0.8) == 0.75
    assert calibration_svg(rows).count("<polyline") == 1
    assert "| pair | serving | 4 |" in tier_table(rows)


def test_a_refit_that_makes_a_tier_worse_is_told() -> None:
    # errors of e^0.1 - 1 = 10.5 % and e^0.2 - 1 = 22.1 %
    shipped_numbers, refitted = [missed(0.1)], [missed(0.2)]
    (row,) = comparison_table(shipped_numbers, refitted).splitlines()[2:]
    assert row == "| pair | serving | 1 | 10.5 / 11 | 22.1 / 22 | **worse / worse** |"
    assert "| better / better |" in comparison_table(refitted, shipped_numbers)
    assert "| same / same |" in comparison_table(refitted, refitted)


def test_five_spread_rows_of_a_combination_are_given_the_middle_one_first(rows: tuple[Measurement, ...]) -> None:
    fold = next(fold for fold in folds(Tier.ACCELERATOR, rows) if fold.name == "h100-sxm")
    members = max(combinations(rows, fold), key=len)
    given = given_rows(rows, members)
    loads = [(float(rows[row].terms.batch), rows[row].setup.isl_tokens, rows[row].setup.osl_tokens) for row in given]
    assert len(set(given)) == 5
    assert sorted(loads) == [loads[order] for order in (2, 3, 0, 4, 1)]  # given: middle, heaviest, lightest, the others
    assert loads[1] == max(
        (float(rows[row].terms.batch), rows[row].setup.isl_tokens, rows[row].setup.osl_tokens) for row in members
    )


def test_each_count_of_uploads_scores_the_same_rows_of_six_or_more(rows: tuple[Measurement, ...]) -> None:
    of_one_chip = [row for row in rows if row.configuration.accelerator in ("l40s", "rtx-4090", "h200-nvl")]
    found = value_of_uploads(of_one_chip, refits=False)
    assert [len(found[count]) for count in (0, 1, 2, 5)] == [len(found[0])] * 4
    kept = {each.fold for each in found[0]}
    assert kept <= {"l40s", "rtx-4090", "h200-nvl"}
    assert summary(found[5]).median_error < summary(found[0]).median_error


def test_a_new_sweep_is_predicted_better_than_by_physics_alone(rows: tuple[Measurement, ...]) -> None:
    found = cross_validate(rows, [Tier.SERIES], refits=False)
    serving = summary([each for each in found if each.phase is Phase.SERVING])
    assert serving.median_error < 0.045
    assert serving.median_error < serving.physics_median_error / 2
    assert 0.75 <= serving.row_coverage_fraction <= 0.95
