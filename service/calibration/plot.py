"""A calibration plot: how often intervals hold against how often they are meant to, as an SVG image."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np

from service.calibration.cross_validation import Missed
from service.sizing.parameters import NORMAL_QUANTILE_90

SIZE, MARGIN = 480, 56
LEVELS: Final = tuple(level / 20 for level in range(1, 20))
COLOURS: Final = ("#1b6ca8", "#c8553d", "#588b3a", "#7a5195", "#b8860b", "#4a4a4a", "#0f9d8a")


def calibration_svg(missed: Sequence[Missed]) -> str:
    """A line for each tier; on the diagonal, intervals hold as often as they say."""
    inner = SIZE - 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + 120} {SIZE}" font-family="sans-serif"',
        ' font-size="12">',
        '<title>How often intervals hold</title><rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{inner}" height="{inner}" fill="none" stroke="#999"/>',
        f'<line x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" stroke="#999" stroke-dasharray="4"/>',
        f'<text x="{SIZE / 2}" y="{SIZE - 16}" text-anchor="middle">meant to hold</text>',
        f'<text x="18" y="{SIZE / 2}" text-anchor="middle" transform="rotate(-90 18 {SIZE / 2})">held</text>',
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<text x="{_x(tick)}" y="{_y(0) + 16}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{_x(0) - 8}" y="{_y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    for number, tier in enumerate(dict.fromkeys(each.tier for each in missed)):
        of_tier = [each for each in missed if each.tier is tier]
        points = " ".join(f"{_x(level):.1f},{_y(held(of_tier, level)):.1f}" for level in LEVELS)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_x(1) + 10}" y="{_y(1) + 16 * (number + 1)}" fill="{colour}">{tier}</text>')
    return "\n".join([*parts, "</svg>\n"])


def held(missed: Sequence[Missed], level: float) -> float:
    """Share of rows inside intervals meant to hold with that probability."""
    width = NormalDist().inv_cdf(0.5 + level / 2) / NORMAL_QUANTILE_90
    return float(np.mean([abs(each.error) <= width * np.log(each.factor) for each in missed]))


def _x(share: float) -> float:
    return MARGIN + share * (SIZE - 2 * MARGIN)


def _y(share: float) -> float:
    return SIZE - MARGIN - share * (SIZE - 2 * MARGIN)
