"""Which one measurement would narrow an answer's intervals most.

A run of the very thing that is asked about narrows an estimate more than any other single run. What can be measured
in one go are the closed loop at the asked load (TPOT and TTFT), one sequence alone, and one prompt alone; of these
the one is named whose intervals, as the kriging variance has them with one more run there, shrink most in all.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import log
from typing import Final, NamedTuple

from service.sizing.refinement import Belief
from service.sizing.run_terms import Phase


class Experiment(StrEnum):
    CLOSED_LOOP = "closed_loop"
    SINGLE_STREAM = "single_stream"
    PREFILL = "prefill"


MEASURED_BY: Final[Mapping[Experiment, tuple[Phase, ...]]] = {
    Experiment.CLOSED_LOOP: (Phase.SERVING, Phase.TTFT),
    Experiment.SINGLE_STREAM: (Phase.SINGLE_STREAM,),
    Experiment.PREFILL: (Phase.PREFILL,),
}


class Narrowed(NamedTuple):
    """Half widths of an interval, as factors, before and after."""

    phase: Phase
    factor: float
    factor_then: float


class NextMeasurement(NamedTuple):
    experiment: Experiment
    narrows: tuple[Narrowed, ...]

    @property
    def gain(self) -> float:
        """Sum of the logarithms that the half widths lose."""
        return sum([log(each.factor / each.factor_then) for each in self.narrows])


def next_measurement(beliefs: Mapping[Phase, Belief]) -> NextMeasurement | None:
    """``None`` where nothing that can be measured would narrow anything, or nothing is learnt from runs."""
    candidates = [_candidate(experiment, phases, beliefs) for experiment, phases in MEASURED_BY.items()]
    best = max(candidates, key=lambda each: each.gain)
    return best if best.gain > 0 else None


def _candidate(experiment: Experiment, phases: tuple[Phase, ...], beliefs: Mapping[Phase, Belief]) -> NextMeasurement:
    narrowed = [
        Narrowed(phase, belief.factor, belief.factor_if_measured)
        for phase, belief in ((phase, beliefs[phase]) for phase in phases)
        if belief.factor_if_measured is not None and belief.factor_if_measured < belief.factor
    ]
    return NextMeasurement(experiment, tuple(narrowed))
