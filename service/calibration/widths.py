"""Sets the factors on kriging's spread so that 80 % intervals hold, for rows and for whole campaigns of rows.

Rows of one campaign miss together: an interval that holds 80 % of rows can miss every row of a campaign. The factor of
a phase and a distance is the larger of what rows and what campaigns (their median rows) need, each tier of
cross-validation counting alike, and shrunk to the value of all phases where there are few.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from service.calibration.cross_validation import Missed
from service.calibration.folds import Tier
from service.sizing.neighbourhood import DISTANCE_BINS
from service.sizing.parameters import NORMAL_QUANTILE_90
from service.sizing.run_terms import Phase

COVERAGE: Final = 0.8
ROWS_TO_TRUST, CAMPAIGNS_TO_TRUST, BIN_CAMPAIGNS_TO_TRUST = 20, 8, 20
LARGEST: Final = 2.5


def width_factors(missed: Sequence[Missed]) -> Mapping[Phase, tuple[float, ...]]:
    """By phase and bin of distance. Farther from evidence no interval is narrower: factors do not fall."""
    return {phase: _of_phase([each for each in missed if each.phase is phase], missed) for phase in Phase}


def _of_phase(own: Sequence[Missed], of_all: Sequence[Missed]) -> tuple[float, ...]:
    campaigns_of_phase = _quantile(_campaigns(own), 1.0)
    factors, trust = [], []
    for place in range(len(DISTANCE_BINS) + 1):
        members, general = ([each for each in missed if _bin(each) == place] for missed in (own, of_all))
        rows, campaigns = _rows(members), _campaigns(members)
        of_rows = _shrunk(_quantile(rows, 1.0), _quantile(_rows(general), 1.0), len(rows), ROWS_TO_TRUST)
        of_campaigns = _shrunk(
            _quantile(campaigns, 1.0), _quantile(_campaigns(general), 1.0), len(campaigns), CAMPAIGNS_TO_TRUST
        )
        of_campaigns = _shrunk(of_campaigns, campaigns_of_phase, len(campaigns), BIN_CAMPAIGNS_TO_TRUST)
        factors.append(min(LARGEST, max(of_rows, of_campaigns)))
        trust.append(1 + len(campaigns))
    return tuple(round(factor, 2) for factor in never_falling(factors, trust))


def never_falling(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Isotonic regression (pool adjacent violators): neighbours that fall are replaced by their weighted mean.

    >>> never_falling([3.0, 1.0, 2.0], [1.0, 3.0, 1.0])
    [1.5, 1.5, 2.0]
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, own, count), (other, others, more) = pools.pop(-2), pools.pop()
            pools.append(((one * own + other * others) / (own + others), own + others, count + more))
    return [value for value, _, count in pools for _ in range(count)]


Weighted = list[tuple[float, float]]


def _bin(each: Missed) -> int:
    return sum(each.distance >= edge for edge in DISTANCE_BINS)


def _in_widths(each: Missed) -> float:
    return each.error / (NORMAL_QUANTILE_90 * each.sd)


def _rows(missed: Sequence[Missed]) -> Weighted:
    """Each row's miss, a tier weighing as much as another."""
    return _evened([(each.tier, abs(_in_widths(each))) for each in missed])


def _campaigns(missed: Sequence[Missed]) -> Weighted:
    """The median row's miss of each campaign in each tier."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for each in missed:
        groups.setdefault((each.tier, each.campaign, each.phase), []).append(_in_widths(each))
    return _evened([(tier, abs(float(np.median(values)))) for (tier, _, _), values in groups.items()])


def _evened(misses: list[tuple[str, float]]) -> Weighted:
    counts: dict[str, int] = {}
    for tier, _ in misses:
        counts[tier] = counts.get(tier, 0) + 1
    return [(miss, 1 / counts[tier]) for tier, miss in misses]


def _quantile(weighted: Weighted, without: float) -> float:
    """The factor that holds ``COVERAGE`` of the weight."""
    if not weighted:
        return without
    ordered = sorted(weighted)
    below = np.cumsum([weight for _, weight in ordered])
    return ordered[min(len(ordered) - 1, int(np.searchsorted(below, COVERAGE * below[-1])))][0]


def _shrunk(own: float, general: float, count: int, to_trust: int) -> float:
    trust = count / (count + to_trust)
    return trust * own + (1 - trust) * general


def with_factors(missed: Sequence[Missed], factors: Mapping[Phase, tuple[float, ...]]) -> list[Missed]:
    """The same misses, with the intervals that these factors give."""
    return [
        replace(each, factor=float(np.exp(NORMAL_QUANTILE_90 * each.sd * factors[each.phase][_bin(each)])))
        for each in missed
    ]


FEWEST_UNSEEN_CAMPAIGNS: Final = 4


def unseen_widths(missed: Sequence[Missed]) -> Mapping[tuple[str, Phase], float]:
    """How many times wider intervals had to be for 80 % of rows and of campaigns, by group of which no run was stored.

    At least 1. Groups with few campaigns are told together, under no name.
    """
    groups: dict[tuple[str, Phase], list[Missed]] = {}
    for each in missed:
        if each.tier is Tier.VENDOR:
            groups.setdefault((each.hardware_group, each.phase), []).append(each)
            groups.setdefault(("", each.phase), []).append(each)
    return {
        key: round(max(1.0, _needed(members)), 1)
        for key, members in sorted(groups.items())
        if key[0] == "" or len({each.campaign for each in members}) >= FEWEST_UNSEEN_CAMPAIGNS
    }


def _needed(missed: Sequence[Missed]) -> float:
    """Of the widths that they have."""
    campaigns: dict[str, list[float]] = {}
    for each in missed:
        campaigns.setdefault(each.campaign, []).append(each.error / float(np.log(each.factor)))
    rows = [(abs(value), 1.0) for values in campaigns.values() for value in values]
    return max(_quantile(rows, 1.0), _quantile([(abs(float(np.median(v))), 1.0) for v in campaigns.values()], 1.0))
