"""Decode: one step gives each running sequence a token. It reads every active weight and all of their KV caches.

For a fixed context every term is linear in the batch but the experts that are read, so a step is kept as its
coefficients: worked out once, evaluated at any batch (or an array of batches) for next to nothing.
"""

from dataclasses import dataclass
from typing import Any

from service.sizing.parameters import StepParameters
from service.sizing.roofline import Bound
from service.sizing.step import Step, StepCosts, Term, expert_coverage_fraction, larger, smaller


@dataclass(frozen=True, slots=True)
class DecodeTerm:
    """``fixed + per_rank_sequence * sequences of a dp rank + per_sequence * batch + covered * expert coverage``.

    ``spec_fraction`` of it is the time at printed rates, whatever the batch.
    """

    name: str
    bound: Bound
    spec_fraction: float = 0.0
    fixed_s: float = 0.0
    s_per_rank_sequence: float = 0.0
    s_per_sequence: float = 0.0
    covered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeCurve:
    """The time of a decode step as a function of the batch of the replica."""

    terms: tuple[DecodeTerm, ...]
    fixed_s: float
    s_per_rank_sequence: float
    s_per_sequence: float
    covered_s: float
    tokens_per_sequence: int
    costs: StepCosts

    def time_s(self, batch: Any) -> Any:
        """The sum of all terms."""
        return (
            self.fixed_s
            + self.s_per_rank_sequence * larger(batch / self.costs.dp, 1.0)
            + self.s_per_sequence * batch
            + self.covered_s * self._coverage(batch)
        )

    def step(self, batch: Any) -> Step:
        """Term by term."""
        per_rank, coverage = larger(batch / self.costs.dp, 1.0), self._coverage(batch)
        terms = []
        for term in self.terms:
            time_s = (
                term.fixed_s
                + term.s_per_rank_sequence * per_rank
                + term.s_per_sequence * batch
                + term.covered_s * coverage
            )
            terms.append(Term(term.name, time_s, time_s * term.spec_fraction, term.bound))
        return Step.of(tuple(terms))

    def _coverage(self, batch: Any) -> Any:
        """Experts touched by a micro-batch of the pipeline."""
        return expert_coverage_fraction(
            batch * self.tokens_per_sequence / self.costs.pp,
            expert_count=self.costs.expert_count,
            experts_per_token=self.costs.experts_per_token,
        )


def decode_curve(
    costs: StepCosts, parameters: StepParameters, *, context_tokens: float, tokens_per_sequence: int = 1
) -> DecodeCurve:
    """The step at a mean context, verifying ``tokens_per_sequence`` positions of each sequence.

    Assumes: each weight byte is read once per step (per micro-batch of a pipeline); experts are chosen
    independently; the KV cache is read once however many positions are verified.
    """
    p, tokens = parameters, tokens_per_sequence
    dense, expert, head_s = costs.dense_matrices, costs.expert_matrices, costs.head_s_per_sequence
    projections_s = p.flop * (dense.reached_s_per_token + head_s)
    expert_s = p.flop * p.expert_flop * expert.reached_s_per_token
    attention_s = p.flop * decode_attention_s(costs, context_tokens=context_tokens)
    exchange_s = costs.all_reduce_s_per_token + costs.all_to_all_s_per_token
    read_s = attention_read_s(costs, context_tokens=context_tokens)
    memory, compute, overhead = Bound.MEMORY, Bound.COMPUTE, Bound.OVERHEAD
    expert_efficiency = p.weights * p.expert_weights
    terms = (
        DecodeTerm("weights", memory, 1 / p.weights, fixed_s=p.weights * costs.dense_read_s),
        DecodeTerm("experts", memory, 1 / expert_efficiency, covered_s=expert_efficiency * costs.expert_read_s),
        DecodeTerm("kv_cache", memory, 1 / p.kv_cache, s_per_rank_sequence=p.kv_cache * read_s),
        DecodeTerm(
            "recurrent_state", memory, 1 / p.kv_cache, s_per_rank_sequence=p.kv_cache * costs.state_s_per_sequence
        ),
        DecodeTerm(
            "projections",
            compute,
            (dense.spec_s_per_token + head_s) / projections_s,
            s_per_rank_sequence=projections_s * tokens,
        ),
        DecodeTerm(
            "expert_projections",
            compute,
            expert.spec_s_per_token / expert_s if expert_s else 0.0,
            s_per_sequence=expert_s * tokens,
        ),
        DecodeTerm("attention", compute, 1 / p.flop, s_per_rank_sequence=attention_s * tokens),
        DecodeTerm(
            "communication",
            Bound.COMMUNICATION,
            1 / p.communication,
            s_per_rank_sequence=p.communication * exchange_s * tokens,
        ),
        DecodeTerm("layer_overhead", overhead, fixed_s=costs.overhead_s),
        DecodeTerm("sequence_overhead", overhead, s_per_rank_sequence=p.sequence_s),
    )
    return DecodeCurve(
        terms=terms,
        fixed_s=sum(term.fixed_s for term in terms),
        s_per_rank_sequence=sum(term.s_per_rank_sequence for term in terms),
        s_per_sequence=sum(term.s_per_sequence for term in terms),
        covered_s=sum(term.covered_s for term in terms),
        tokens_per_sequence=tokens,
        costs=costs,
    )


def attention_read_s(costs: StepCosts, *, context_tokens: Any) -> Any:
    """Reading one sequence's KV cache at spec bandwidth, without its recurrent state."""
    return sum(
        smaller(context_tokens, each.cap_tokens) * each.read_s_per_token + context_tokens * each.index_read_s_per_token
        for each in costs.attention
    )


def decode_attention_s(costs: StepCosts, *, context_tokens: Any) -> Any:
    """Attending from one token to its context, in arithmetic at the 16-bit rate."""
    return sum(
        smaller(context_tokens, each.cap_tokens) * each.decode_compute_s_per_token
        + context_tokens * each.index_compute_s_per_token
        for each in costs.attention
    )
