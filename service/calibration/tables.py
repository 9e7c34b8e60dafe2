"""Sums up cross-validation: errors, and how often intervals hold for rows and for whole campaigns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from service.calibration.cross_validation import Missed
from service.calibration.folds import NOT_COUNTED
from service.sizing.run_terms import Phase


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors are |predicted / measured - 1|. A campaign is covered when its median row is."""

    run_count: int
    median_error: float
    p90_error: float
    physics_median_error: float
    physics_p90_error: float
    row_coverage_fraction: float
    campaign_coverage_fraction: float
    campaign_count: int
    half_width_factor: float


def summary(missed: Sequence[Missed]) -> Summary:
    error, physics = (np.abs(np.expm1([getattr(each, name) for each in missed])) for name in ("error", "physics_error"))
    inside = covered(missed)
    by_campaign: dict[tuple[str, str], list[Missed]] = {}
    for each in missed:
        by_campaign.setdefault((each.campaign, each.phase), []).append(each)
    campaigns = [_campaign_holds(members) for members in by_campaign.values()]
    return Summary(
        run_count=len(missed),
        median_error=float(np.median(error)),
        p90_error=float(np.quantile(error, 0.9)),
        physics_median_error=float(np.median(physics)),
        physics_p90_error=float(np.quantile(physics, 0.9)),
        row_coverage_fraction=float(np.mean(inside)),
        campaign_coverage_fraction=float(np.mean(campaigns)),
        campaign_count=len(campaigns),
        half_width_factor=float(np.median([each.factor for each in missed])),
    )


def covered(missed: Iterable[Missed]) -> list[bool]:
    return [abs(each.error) <= np.log(each.factor) for each in missed]


def _campaign_holds(members: Sequence[Missed]) -> bool:
    """Whether the row with the median error, in widths of its own interval, is inside."""
    in_widths = sorted(each.error / np.log(each.factor) for each in members)
    return bool(abs(np.median(in_widths)) <= 1)


HEADER = (
    "| left out | of | runs | median / p90 error % | physics alone % | rows inside | campaigns inside | half width |\n"
    "|---|---|---|---|---|---|---|---|"
)


def line(left_out: str, of: str, missed: Sequence[Missed]) -> str:
    s = summary(missed)
    return (
        f"| {left_out} | {of} | {s.run_count} | {100 * s.median_error:.1f} / {100 * s.p90_error:.0f} "
        f"| {100 * s.physics_median_error:.1f} / {100 * s.physics_p90_error:.0f} | {s.row_coverage_fraction:.2f} "
        f"| {s.campaign_coverage_fraction:.2f} of {s.campaign_count} | x{s.half_width_factor:.2f} |"
    )


def tier_table(missed: Sequence[Missed]) -> str:
    """A line for each tier and phase; rates together are of aggregated runs and exclude TTFT."""
    lines = [HEADER]
    for tier in dict.fromkeys(each.tier for each in missed):
        of_tier = [each for each in missed if each.tier is tier]
        rates = [each for each in of_tier if each.phase not in NOT_COUNTED]
        if rates:
            lines.append(line(tier, "all rates", rates))
        for phase in Phase:
            of_phase = [each for each in of_tier if each.phase is phase]
            if of_phase:
                lines.append(line(tier, phase, of_phase))
    return "\n".join(lines)
