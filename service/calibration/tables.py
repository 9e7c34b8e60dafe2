"""Sums up cross-validation: errors, and how often intervals hold for rows and for whole campaigns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.calibration.cross_validation import Missed
from service.calibration.folds import NOT_COUNTED, Tier
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


def coverage_table(missed: Sequence[Missed]) -> str:
    """A line for each hardware group and kind of time, all tiers together in which others of the group were stored."""
    groups: dict[tuple[str, Phase], list[Missed]] = {}
    for each in missed:
        if each.tier is not Tier.VENDOR:
            groups.setdefault((each.hardware_group, each.phase), []).append(each)
    return "\n".join([HEADER.replace("left out", "group"), *(line(*key, groups[key]) for key in sorted(groups))])


COMPARISON_HEADER = (
    "| left out | of | runs | shipped: median / p90 error % | refitted | verdict |\n|---|---|---|---|---|---|"
)


def comparison_table(shipped: Sequence[Missed], refitted: Sequence[Missed]) -> str:
    """The same folds under two sets of numbers; worse is a median or a p90 that rises by a digit that is printed."""
    lines = [COMPARISON_HEADER]
    groups = dict.fromkeys((each.tier, each.phase) for each in shipped)
    for tier, phase in sorted(groups, key=lambda group: (list(Tier).index(group[0]), list(Phase).index(group[1]))):
        of_group = [
            [each for each in missed if (each.tier, each.phase) == (tier, phase)] for missed in (shipped, refitted)
        ]
        before, after = (_errors(summary(missed)) for missed in of_group)
        said = " / ".join(
            ("worse" if new > old else "same" if new == old else "better")
            for old, new in zip(before, after, strict=True)
        )
        verdict = f"**{said}**" if "worse" in said else said
        lines.append(
            f"| {tier} | {phase} | {len(of_group[0])} | {before[0]:.1f} / {before[1]:.0f} "
            f"| {after[0]:.1f} / {after[1]:.0f} | {verdict} |"
        )
    return "\n".join(lines)


def _errors(of: Summary) -> tuple[float, float]:
    """As printed: percent, the median to a tenth and the 90th percentile to one."""
    return round(100 * of.median_error, 1), float(round(100 * of.p90_error))


UPLOAD_HEADER = HEADER.replace("left out", "runs given")


def upload_table(missed: Mapping[int, Sequence[Missed]]) -> str:
    """A line for each count of given runs and kind of time; every count scores the same rows."""
    lines = [UPLOAD_HEADER]
    for name, phases in UPLOAD_PHASES.items():
        for count, of_count in missed.items():
            chosen = [each for each in of_count if each.phase in phases]
            if chosen:
                lines.append(line(str(count), name, chosen))
    return "\n".join(lines)


UPLOAD_PHASES: Mapping[str, tuple[Phase, ...]] = {
    "all rates": tuple(phase for phase in Phase if phase is not Phase.TTFT),
    "serving": (Phase.SERVING,),
    "ttft": (Phase.TTFT,),
}
