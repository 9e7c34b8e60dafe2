"""Where it was measured how often intervals hold, and how much wider they are where no run of such parts is stored.

``sizing validate prediction`` measures both anew: the table by hardware group, and the list of times wider. A group of
which fewer than eight campaigns were predicted from others in a phase is not listed: nothing is claimed for it.
"""

from collections.abc import Mapping
from typing import Final

from service.sizing.run_identity import DATA_CENTRE, GEFORCE, HOST_BUS_CARDS, INSTINCT, OLDER, RADEON
from service.sizing.run_terms import Phase

INTERVAL_FRACTION: Final = 0.8

# Share of rows or of campaigns (their median rows) inside 80 % intervals, the lower of the two.
MEASURED: Final[Mapping[str, Mapping[Phase, float]]] = {
    DATA_CENTRE: {
        Phase.SERVING: 0.80,
        Phase.SINGLE_STREAM: 0.68,
        Phase.STATIC_BATCH: 0.79,
        Phase.OFFLINE: 0.81,
        Phase.PREFILL: 0.90,
        Phase.TTFT: 0.84,
        Phase.DISAGGREGATED: 0.91,
    },
    HOST_BUS_CARDS: {Phase.SINGLE_STREAM: 0.78, Phase.OFFLINE: 0.79, Phase.PREFILL: 0.98},
    GEFORCE: {Phase.SINGLE_STREAM: 0.95},
    RADEON: {Phase.SINGLE_STREAM: 0.88, Phase.PREFILL: 0.74},
    "Apple": {Phase.SINGLE_STREAM: 0.77},
    "AWS": {Phase.SINGLE_STREAM: 0.55},
    "Intel": {Phase.STATIC_BATCH: 0.90},
}

# Logarithms of half-widths had to be so many times larger to hold 80 % of rows and of campaigns.
UNSEEN: Final[Mapping[str, Mapping[Phase, float]]] = {
    HOST_BUS_CARDS: {Phase.SINGLE_STREAM: 1.1, Phase.OFFLINE: 1.3, Phase.PREFILL: 1.0},
    GEFORCE: {Phase.SINGLE_STREAM: 1.2, Phase.PREFILL: 1.2},
    OLDER: {Phase.SINGLE_STREAM: 1.4},
    INSTINCT: {Phase.STATIC_BATCH: 2.2},
    RADEON: {Phase.SINGLE_STREAM: 1.0, Phase.PREFILL: 1.5},
    "Apple": {Phase.SINGLE_STREAM: 1.2, Phase.PREFILL: 1.0},
    "AWS": {Phase.SINGLE_STREAM: 3.7, Phase.STATIC_BATCH: 1.8},
    "Google": {Phase.SERVING: 3.5, Phase.TTFT: 1.4},
    "Intel": {Phase.STATIC_BATCH: 1.0},
}
UNSEEN_ELSEWHERE: Final[Mapping[Phase, float]] = {  # all of these groups together; disaggregated as serving
    Phase.SERVING: 1.8,
    Phase.SINGLE_STREAM: 1.1,
    Phase.STATIC_BATCH: 1.2,
    Phase.OFFLINE: 1.3,
    Phase.PREFILL: 1.3,
    Phase.TTFT: 2.0,
    Phase.DISAGGREGATED: 1.8,
}


def coverage_fraction(hardware_group: str | None, phase: Phase) -> float | None:
    """How often the 80 % intervals hold there, at most 0.8; ``None`` where that was not measured.

    >>> coverage_fraction("NVIDIA data centre", Phase.SERVING), coverage_fraction("NVIDIA GeForce", Phase.SERVING)
    (0.8, None)
    """
    measured = MEASURED.get(hardware_group or "", {}).get(phase)
    return None if measured is None else min(INTERVAL_FRACTION, measured)


def unseen_width(hardware_group: str | None, phase: Phase) -> float:
    """Multiplies the half-width while no run of the group is stored.

    1 for the data centre's parts, which the numbers of the physics themselves were fitted to, and for unknown ones.
    """
    if hardware_group is None or hardware_group == DATA_CENTRE:
        return 1.0
    return UNSEEN.get(hardware_group, UNSEEN_ELSEWHERE).get(phase, UNSEEN_ELSEWHERE[phase])
