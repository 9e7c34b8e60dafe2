"""What stored runs say about each speed of one question: the bridge between the physics of a replica and evidence.

Without a store every ratio is 1 and every spread the prior of its phase, so that answers are those of the physics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from service.sizing.estimate import Basis, Estimate
from service.sizing.evidence import EvidenceStore, Lean
from service.sizing.parameters import (
    PREFILL_PRIOR,
    SERVING_PRIOR,
    SINGLE_STREAM_PRIOR,
    TTFT_PRIOR,
    ResidualPrior,
)
from service.sizing.run_identity import Configuration, Point
from service.sizing.run_terms import Phase
from service.sizing.run_time import SHARES
from service.sizing.serving import Load, ReplicaUnderLoad, ServingPoint
from service.sizing.step import Step

PRIORS: Final[Mapping[Phase, ResidualPrior]] = {
    Phase.SERVING: SERVING_PRIOR,
    Phase.SINGLE_STREAM: SINGLE_STREAM_PRIOR,
    Phase.PREFILL: PREFILL_PRIOR,
    Phase.TTFT: TTFT_PRIOR,
}
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


@dataclass(frozen=True, slots=True)
class Belief:
    """A predicted time is multiplied by ``ratio``; ln of the truth spreads by ``sd`` about that.

    ``leans_on`` is empty, and ``distance`` 1, where no run was asked.
    """

    ratio: float
    sd: float
    factor: float
    basis: Basis = Basis.MODELLED
    distance: float = 1.0
    leans_on: tuple[Lean, ...] = ()

    @classmethod
    def of_prior(cls, prior: ResidualPrior) -> "Belief":
        return cls(1.0, prior.sd, prior.factor)

    def around(self, corrected: float, coverage_fraction: float | None) -> Estimate:
        """The estimate about a time that has been corrected."""
        return Estimate(corrected, corrected / self.factor, corrected * self.factor, coverage_fraction, self.basis)


BELIEFS_BEFORE_EVIDENCE: Final = {phase: Belief.of_prior(prior) for phase, prior in PRIORS.items()}


@dataclass(frozen=True, slots=True)
class Beliefs:
    """About every time of one replica under its load. ``store`` left out: the priors."""

    store: EvidenceStore | None
    configuration: Configuration | None
    _known: dict[tuple[Phase, Point], Belief] = field(default_factory=dict)

    def about(self, phase: Phase, point: Point) -> Belief:
        if self.store is None or self.configuration is None:
            return BELIEFS_BEFORE_EVIDENCE[phase]
        if (phase, point) not in self._known:
            found = self.store.refine(replace(self.configuration, phase=phase), point)
            belief = Belief(found.ratio, found.sd, found.factor, found.basis, found.distance, found.leans_on)
            self._known[phase, point] = belief
        return self._known[phase, point]

    def serving(self, replica: ReplicaUnderLoad, point: ServingPoint) -> Belief:
        """About seconds per output token."""
        if self.store is None:
            return BELIEFS_BEFORE_EVIDENCE[Phase.SERVING]
        return self.about(Phase.SERVING, _at(replica.load, point.running, _tpot_shares(replica, point)))

    def ttft(self, replica: ReplicaUnderLoad, point: ServingPoint) -> Belief:
        """About seconds to the first token, but those of waiting for a place."""
        if self.store is None:
            return BELIEFS_BEFORE_EVIDENCE[Phase.TTFT]
        return self.about(Phase.TTFT, _at(replica.load, point.running, _ttft_shares(replica, point)))

    def single_stream(self, replica: ReplicaUnderLoad) -> Belief:
        """About seconds per output token of one sequence."""
        if self.store is None:
            return BELIEFS_BEFORE_EVIDENCE[Phase.SINGLE_STREAM]
        step = replica.step(1)
        return self.about(Phase.SINGLE_STREAM, _at(replica.load, 1, _shares(step, prefill_s=0.0)))

    def prefill(self, load: Load, step: Step) -> Belief:
        """About one prompt alone."""
        if self.store is None:
            return BELIEFS_BEFORE_EVIDENCE[Phase.PREFILL]
        reads = ("weights", "experts", "communication", "layer_overhead")
        parts = tuple(term for term in step.terms if term.name in reads)
        read = Step.of(parts)
        shares = _shares(read, prefill_s=step.time_s - read.time_s)
        return self.about(Phase.PREFILL, Point(1.0, load.isl_tokens, 1.0, shares))

    def corrected(self, replica: ReplicaUnderLoad, point: ServingPoint) -> ServingPoint:
        """The closed loop with its times as the evidence has them; rates follow by Little's law as before."""
        if self.store is None:
            return point
        serving, ttft_ratio = self.serving(replica, point), self.ttft(replica, point).ratio
        step = self.single_stream(replica) if point.running == 1 else serving
        tpot_s = point.tpot_s * serving.ratio if point.tpot_s is not None else None
        first_s = (point.ttft_s - point.waiting_s) * ttft_ratio
        residence_s = first_s + (replica.load.osl_tokens - 1) * (tpot_s or 0.0)
        waiting_s = (point.concurrency / point.running - 1) * residence_s
        return point._replace(
            step_time_s=point.step_time_s * step.ratio,
            tpot_s=tpot_s,
            ttft_s=first_s + waiting_s,
            waiting_s=waiting_s,
            requests_per_s=point.running / residence_s,
        )


def _at(load: Load, batch: int, shares: tuple[float, ...]) -> Point:
    return Point(float(batch), load.isl_tokens, load.osl_tokens, shares)


def _shares(step: Step, *, prefill_s: float, more_overhead_s: float = 0.0) -> tuple[float, ...]:
    """Of each of ``SHARES`` in the terms of a step and what comes on top."""
    seconds = dict.fromkeys(SHARES, 0.0)
    for term in step.terms:
        seconds[SHARE_OF_TERM[term.name]] += term.time_s
    seconds["prefill"] += prefill_s
    seconds["overhead"] += more_overhead_s
    total = sum(seconds.values())
    return tuple(each / total for each in seconds.values())


def _tpot_shares(replica: ReplicaUnderLoad, point: ServingPoint) -> tuple[float, ...]:
    p, load = replica.parameters, replica.load
    stalls_s = p.stall * point.running / load.osl_tokens * replica.prompt_s
    return _shares(replica.step(point.running), prefill_s=stalls_s * load.drafting.acceptance_length_tokens)


def _ttft_shares(replica: ReplicaUnderLoad, point: ServingPoint) -> tuple[float, ...]:
    p, accepted = replica.parameters, replica.load.drafting.acceptance_length_tokens
    step = replica.step(point.running)
    token_s = step.time_s / accepted
    first_s = point.ttft_s - point.waiting_s
    prefill_s = max(0.0, first_s - p.ttft_steps * token_s - p.ttft_request_s)
    in_steps = accepted / p.ttft_steps if p.ttft_steps else 0.0
    return _shares(step, prefill_s=prefill_s * in_steps, more_overhead_s=p.ttft_request_s * in_steps)
