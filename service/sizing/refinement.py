"""What stored runs say about each speed of one question: the bridge between the physics of a replica and evidence.

Without a store every ratio is 1 and every spread that of an empty store, so that answers are those of the physics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp
from typing import Final, NamedTuple

from service.sizing.coverage import coverage_fraction
from service.sizing.decode import DecodeCurve
from service.sizing.estimate import Basis, Estimate
from service.sizing.evidence import EvidenceStore, sd_without_runs
from service.sizing.neighbourhood import Lean, Neighbourhood, Neighbourhoods, Refinement
from service.sizing.parameters import NORMAL_QUANTILE_90
from service.sizing.run_identity import Configuration, Point
from service.sizing.run_terms import Phase
from service.sizing.run_time import SHARES
from service.sizing.serving import ReplicaUnderLoad, ServingPoint
from service.sizing.step import Step

SHARE_OF_TERM: Final[Mapping[str, str]] = {
    "weights": "dense",
    "projections": "dense",
    "experts": "experts",
    "expert_projections": "experts",
    "kv_cache": "kv_cache",
    "recurrent_state": "kv_cache",
    "attention": "kv_cache",
    "sparse_index": "kv_cache",
    "communication": "communication",
    "layer_overhead": "overhead",
    "drafting": "overhead",
    "sequence_overhead": "sequence_overhead",
}


class Belief(NamedTuple):
    """A predicted time is multiplied by ``ratio``; ln of the truth spreads by ``sd`` about that.

    ``coverage_fraction`` is how often such intervals hold. ``distance`` is 1 where no run was asked.
    ``factor_if_measured`` is the half width that one more run, of this very thing, would leave. ``near`` and ``found``
    lead to the runs that it leans on.
    """

    ratio: float
    sd: float
    factor: float
    coverage_fraction: float | None
    basis: Basis = Basis.MODELLED
    distance: float = 1.0
    factor_if_measured: float | None = None
    near: Neighbourhood | None = None
    found: Refinement | None = None

    @classmethod
    @lru_cache(maxsize=256)
    def of_prior(cls, phase: Phase, hardware_group: str | None) -> "Belief":
        sd = sd_without_runs(hardware_group, phase)
        return cls(1.0, sd, exp(NORMAL_QUANTILE_90 * sd), coverage_fraction(hardware_group, phase))

    @classmethod
    def of_runs(cls, near: Neighbourhood, found: Refinement) -> "Belief":
        return cls(
            found.ratio,
            found.sd,
            found.factor,
            found.coverage_fraction,
            found.basis,
            found.distance,
            found.factor_if_measured,
            near,
            found,
        )

    @property
    def disagreement(self) -> float:
        """ln(measured / answer) of a run of this very thing that the runs around it contradict; 0 where none does."""
        return self.found.disagreement if self.found else 0.0

    @property
    def noise_floor(self) -> float | None:
        """Spread between runs of the very same thing, as fitted: one sd of ln."""
        return self.near.kernel.noise if self.near else None

    @property
    def leans_on(self) -> tuple[Lean, ...]:
        return self.near.leans_on(self.found) if self.near and self.found else ()

    def around(self, corrected: float) -> Estimate:
        """The estimate about a time that has been corrected."""
        return Estimate(corrected, corrected / self.factor, corrected * self.factor, self.coverage_fraction, self.basis)


@dataclass(frozen=True, slots=True)
class StepShares:
    """The seconds of a decode step by what they are spent on, at any batch: each of ``SHARES`` but prefill."""

    curve: DecodeCurve
    lines: tuple[tuple[float, float, float, float], ...]

    @classmethod
    def of(cls, curve: DecodeCurve) -> "StepShares":
        lines = [[0.0, 0.0, 0.0, 0.0] for _ in STEP_SHARES]
        for name, _, _, _, fixed_s, s_per_rank_sequence, s_per_sequence, covered_s in curve.terms:
            line = lines[STEP_SHARES.index(SHARE_OF_TERM[name])]
            line[0] += fixed_s
            line[1] += s_per_rank_sequence
            line[2] += s_per_sequence
            line[3] += covered_s
        return cls(curve, tuple([(a, b, c, d) for a, b, c, d in lines]))

    def seconds(self, batch: float) -> list[float]:
        sequences, per_rank, coverage = self.curve.work(batch)
        return [
            fixed + rank * per_rank + each * sequences + covered * coverage for fixed, rank, each, covered in self.lines
        ]


STEP_SHARES: Final = SHARES[:-1]
OVERHEAD: Final = SHARES.index("overhead")


class Refined(NamedTuple):
    """A point of the closed loop as the evidence has it; ``tpot`` and ``ttft`` are about its times.

    ``ttft`` is not about the time that a request waits for a place.
    """

    point: ServingPoint
    tpot: Belief
    ttft: Belief


class Answers(NamedTuple):
    """About points of the closed loop, seconds per output token of one sequence, and one prompt alone."""

    points: list[Refined]
    single_stream: Belief
    prefill: Belief


@dataclass(frozen=True, slots=True)
class WithoutRuns:
    """Every time as the physics has it, as unsure as a store without runs."""

    hardware_group: str

    def answers(self, points: Sequence[ServingPoint]) -> Answers:
        tpot, ttft = self._prior(Phase.SERVING), self._prior(Phase.TTFT)
        return Answers(
            [Refined(point, tpot, ttft) for point in points],
            self._prior(Phase.SINGLE_STREAM),
            self._prior(Phase.PREFILL),
        )

    def decode_worker(self, batch: float) -> Belief:  # noqa: ARG002 - whatever the batch
        return self._prior(Phase.DISAGGREGATED)

    def _prior(self, phase: Phase) -> Belief:
        return Belief.of_prior(phase, self.hardware_group)

    def corrected(self, points: Sequence[ServingPoint]) -> Sequence[ServingPoint]:
        return points


@dataclass(frozen=True, slots=True)
class LeaningOnRuns:
    """What the stored runs say about every time of one replica under its load. Points are those of the physics.

    ``prompt`` is one prompt alone.
    """

    replica: ReplicaUnderLoad
    prompt: Step
    store: EvidenceStore
    configuration: Configuration
    near: Neighbourhoods
    step_shares: StepShares

    @classmethod
    def of(
        cls, replica: ReplicaUnderLoad, prompt: Step, store: EvidenceStore, configuration: Configuration
    ) -> "LeaningOnRuns":
        near = store.answering(configuration)
        return cls(replica, prompt, store, configuration, near, StepShares.of(replica.curve))

    def answers(self, points: Sequence[ServingPoint]) -> Answers:
        """About at least one point; several at once cost less than one after the other."""
        alone = self._point(1, [*self._step_s(1), 0.0])
        asked = [*self._points(points), [alone], [self._prompt_point()]]
        tpots, ttfts, (single_stream,), (prefill,) = (
            [Belief.of_runs(near, found) for found in refinements]
            for near, refinements in zip(self.near.members, self.near.at(asked), strict=True)
        )
        return Answers(
            [
                Refined(self._with_ratios(point, tpot.ratio, ttft.ratio), tpot, ttft)
                for point, tpot, ttft in zip(points, tpots, ttfts, strict=True)
            ],
            single_stream,
            prefill,
        )

    def corrected(self, points: Sequence[ServingPoint]) -> Sequence[ServingPoint]:
        """The points of ``answers``, for less."""
        return [
            self._with_ratios(point, exp(tpot_shift), exp(ttft_shift))
            for point, tpot_shift, ttft_shift in zip(points, *self.near.shifts(self._points(points)), strict=True)
        ]

    def decode_worker(self, batch: float) -> Belief:
        """About a step of a worker that only decodes."""
        near = self.store.about(replace(self.configuration, phase=Phase.DISAGGREGATED))
        return Belief.of_runs(near, near.at(self._point(batch, [*self._step_s(batch), 0.0])))

    def _prompt_point(self) -> Point:
        seconds = [0.0] * len(SHARES)
        for term in self.prompt.terms:
            share = SHARE_OF_TERM[term.name] if term.name in READ_IN_PREFILL else "prefill"
            seconds[SHARES.index(share)] += term.time_s
        return Point(1.0, self.replica.load.new_prompt_tokens, 1.0, _fractions(seconds))

    def _with_ratios(self, point: ServingPoint, tpot_ratio: float, ttft_ratio: float) -> ServingPoint:
        """The closed loop with its times as the evidence has them; rates follow by Little's law as before."""
        tpot_s = point.tpot_s * tpot_ratio if point.tpot_s is not None else None
        first_s = (point.ttft_s - point.waiting_s) * ttft_ratio
        residence_s = first_s + (self.replica.load.osl_tokens - 1) * (tpot_s or 0.0)
        waiting_s = (point.concurrency / point.running - 1) * residence_s
        return point._replace(
            step_time_s=point.step_time_s * tpot_ratio,
            tpot_s=tpot_s,
            ttft_s=first_s + waiting_s,
            waiting_s=waiting_s,
            requests_per_s=point.running / residence_s,
        )

    def _step_s(self, batch: float) -> list[float]:
        seconds = self.step_shares.seconds(batch)
        seconds[OVERHEAD] += self.replica.drafting_time_s(batch)
        return seconds

    def _points(self, points: Sequence[ServingPoint]) -> tuple[list[Point], list[Point]]:
        """Of TPOT: the steps of a sequence, and the prompts that stall them. Of TTFT: handling, steps, and prompts."""
        replica, p = self.replica, self.replica.parameters
        accepted = replica.load.drafting.acceptance_length_tokens
        stall_s = p.stall / replica.load.osl_tokens * replica.prompt_s * accepted
        steps = p.ttft_steps / accepted
        tpot_points, ttft_points = [], []
        for point in points:
            step_s = self._step_s(point.running)
            prompts_s = max(0.0, point.ttft_s - point.waiting_s - steps * sum(step_s) - p.ttft_request_s)
            waited_s = [steps * each for each in step_s]
            waited_s[OVERHEAD] += p.ttft_request_s
            tpot_points.append(self._point(point.running, [*step_s, stall_s * point.running]))
            ttft_points.append(self._point(point.running, [*waited_s, prompts_s]))
        return tpot_points, ttft_points

    def _point(self, batch: float, seconds: list[float]) -> Point:
        load = self.replica.load
        return Point(float(batch), load.isl_tokens, load.osl_tokens, _fractions(seconds))


Beliefs = WithoutRuns | LeaningOnRuns
READ_IN_PREFILL: Final = frozenset({"weights", "experts", "communication", "layer_overhead"})


def _fractions(seconds: list[float]) -> tuple[float, ...]:
    total = sum(seconds)
    return tuple([each / total for each in seconds])
