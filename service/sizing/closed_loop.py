"""A closed loop as an answer needs it: any concurrency, the estimates there, and the largest that keeps a target."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from typing import ClassVar, NamedTuple, Protocol

from service.sizing.estimate import Estimate, probability_at_most
from service.sizing.parameters import NO_TAIL, P90_SHARE_OF_P99, TPOT_P99, TTFT_P99, Tail
from service.sizing.refinement import Belief, Beliefs, WithoutRuns
from service.sizing.run_terms import Phase
from service.sizing.serving import (
    Load,
    ReplicaUnderLoad,
    ServingPoint,
    largest_concurrency,
    largest_concurrency_near,
)
from service.sizing.step import Step
from service.sizing.workload import Statistic, Target


@dataclass(frozen=True, slots=True)
class Worker:
    """One replica of a layout, one prompt alone on it, and what stored runs say of it."""

    replica: ReplicaUnderLoad
    prompt: Step
    beliefs: Beliefs
    gpu_count: int

    def single_stream(self, about: Belief) -> Estimate:
        """Tokens per second of one sequence alone."""
        step_s = self.replica.at(1).step_time_s * about.ratio
        return about.around(self.replica.load.drafting.acceptance_length_tokens / step_s)


@dataclass(frozen=True)
class Estimates:
    """Of one concurrency; ``batch`` is the mean of what decodes."""

    point: ServingPoint
    about_tpot: Belief
    about_ttft: Belief
    osl_tokens: float
    batch: float

    @cached_property
    def ttft_s(self) -> Estimate:
        """What a request waits for a place is as uncertain as the TPOT of the ones before it."""
        point = self.point
        waiting = self.about_tpot.around(point.waiting_s)
        rest = self.about_ttft.around(point.ttft_s - point.waiting_s)
        low, high = rest.low + waiting.low, rest.high + waiting.high
        return Estimate(point.ttft_s, low, high, rest.coverage_fraction, rest.basis)

    @cached_property
    def tpot_s(self) -> Estimate | None:
        if self.point.tpot_s is None:
            return None
        return self.about_tpot.around(self.point.tpot_s)

    @property
    def requests_per_s(self) -> Estimate:
        """Little's law over the residence time, its low and high ends with TTFT and TPOT both off alike.

        How often that holds was measured for TTFT and TPOT, not for the rate, so it claims no coverage.
        """
        point, ttft, tpot = self.point, self.ttft_s, self.tpot_s
        gaps = self.osl_tokens - 1
        low = ttft.low + gaps * (tpot.low if tpot else 0.0)
        high = ttft.high + gaps * (tpot.high if tpot else 0.0)
        basis = tpot.basis if tpot else ttft.basis
        return Estimate(point.requests_per_s, point.concurrency / high, point.concurrency / low, None, basis)

    def target_probability(self, target: Target) -> float | None:
        """That both limits are kept: the smaller of the two, since their errors go together."""
        ttft_tail, tpot_tail = tails(target.statistic)
        point, chances = self.point, []
        if target.ttft_s is not None:
            chances.append(
                probability_at_most(target.ttft_s, median=point.ttft_s, sd=self.about_ttft.sd, tail=ttft_tail)
            )
        if target.tpot_s is not None and point.tpot_s is not None:
            chances.append(
                probability_at_most(target.tpot_s, median=point.tpot_s, sd=self.about_tpot.sd, tail=tpot_tail)
            )
        return min(chances, default=None)


class LoopEstimates(NamedTuple):
    """Of some concurrencies, in their order, and what is believed of one sequence and of one prompt alone."""

    at: list[Estimates]
    about_single: Belief
    about_prefill: Belief


class ClosedLoop(Protocol):
    """Of one replica, or of a disaggregated system.

    ``most`` is the concurrency beyond which requests only wait, ``fullest_batch`` what then decodes together, and
    ``most_is`` how it is called. ``tpot_phase`` is what the runs measured that its TPOT leans on.
    """

    tpot_phase: ClassVar[Phase]
    most_is: ClassVar[str]

    @property
    def load(self) -> Load: ...

    @property
    def gpu_count(self) -> int: ...

    @property
    def most(self) -> int: ...

    @property
    def fullest_batch(self) -> float: ...

    def at(self, concurrency: int) -> ServingPoint: ...

    def estimates(self, *concurrencies: int) -> LoopEstimates: ...

    def largest_within(self, target: Target) -> int:
        """The largest concurrency whose central estimate keeps the target at its statistic, 0 if none does."""

    def decode_step(self, here: Estimates, about_single: Belief) -> tuple[Step, Estimate]:
        """Term by term by physics, and how long it takes as the evidence has it."""


@dataclass(frozen=True, slots=True)
class ReplicaLoop:
    worker: Worker
    by_physics: Callable[[int], ServingPoint]

    tpot_phase: ClassVar[Phase] = Phase.SERVING
    most_is: ClassVar[str] = "the largest that fits"

    @classmethod
    def of(cls, worker: Worker) -> "ReplicaLoop":
        return cls(worker, cache(worker.replica.at))

    @property
    def load(self) -> Load:
        return self.worker.replica.load

    @property
    def gpu_count(self) -> int:
        return self.worker.gpu_count

    @property
    def most(self) -> int:
        return self.load.running_limit

    @property
    def fullest_batch(self) -> float:
        return self.load.running_limit

    def at(self, concurrency: int) -> ServingPoint:
        """As the physics has it, corrected by what was measured near it."""
        return self.worker.beliefs.corrected([self.by_physics(concurrency)])[0]

    def estimates(self, *concurrencies: int) -> LoopEstimates:
        by_physics = [self.by_physics(each) for each in concurrencies]
        refined, *alone = self.worker.beliefs.answers(by_physics)
        osl_tokens = self.load.osl_tokens
        return LoopEstimates(
            [Estimates(*each, osl_tokens, point.running) for each, point in zip(refined, by_physics, strict=True)],
            *alone,
        )

    def largest_within(self, target: Target) -> int:
        share = share_of_target(target)

        def by_physics(concurrency: int) -> float:
            return share(self.by_physics(concurrency))

        guess = largest_concurrency(by_physics, most=self.most)
        if isinstance(self.worker.beliefs, WithoutRuns):
            return guess

        def corrected(*concurrencies: int) -> list[float]:
            return [*map(share, self.worker.beliefs.corrected([*map(self.by_physics, concurrencies)]))]

        return largest_concurrency_near(corrected, guess, most=self.most)

    def decode_step(self, here: Estimates, about_single: Belief) -> tuple[Step, Estimate]:
        running = here.point.running
        about = about_single if running == 1 else here.about_tpot
        by_physics = self.by_physics(here.point.concurrency)
        return self.worker.replica.step(running), about.around(by_physics.step_time_s * about.ratio)


def share_of_target(target: Target) -> Callable[[ServingPoint], float]:
    """How much of the target a point uses up."""
    ttft, tpot = tails(target.statistic)
    longest_ttft_s = inf if target.ttft_s is None else target.ttft_s / ttft.ratio
    longest_tpot_s = inf if target.tpot_s is None else target.tpot_s / tpot.ratio

    def share(point: ServingPoint) -> float:
        return max(point.ttft_s / longest_ttft_s, (point.tpot_s or 0.0) / longest_tpot_s)

    return share


def tails(statistic: Statistic | None) -> tuple[Tail, Tail]:
    """Of TTFT and TPOT. The closed form gives a run's median; mean and median are not told apart."""
    match statistic:
        case Statistic.P99:
            return TTFT_P99, TPOT_P99
        case Statistic.P90:
            return TTFT_P99.at(P90_SHARE_OF_P99), TPOT_P99.at(P90_SHARE_OF_P99)
        case Statistic.MEAN | Statistic.P50 | None:
            return NO_TAIL, NO_TAIL
