"""Decode: one step gives each running sequence a token. It reads every active weight and all of their KV caches.

For a fixed context every term is linear in the batch but the experts that are read, so a step is kept as its
coefficients: worked out once, evaluated at any batch (or an array of batches) for next to nothing.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from service.sizing.parameters import StepParameters
from service.sizing.roofline import Bound
from service.sizing.step import (
    Step,
    StepCosts,
    Term,
    expert_coverage_fraction,
    layer_overhead_s,
    low_precision_reach,
    smaller,
)


class DecodeTerm(NamedTuple):
    """``fixed + per_rank_sequence * sequences of a dp rank + per_sequence * batch + covered * expert coverage``.

    ``spec_fraction`` of it is the time at printed rates, whatever the batch, and ``spec_rate`` what is done in a
    second of that: bytes or FLOP.
    """

    name: str
    bound: Bound
    spec_fraction: float = 0.0
    spec_rate: float = 0.0
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
        batch, per_rank, coverage = self.work(batch)
        return (
            self.fixed_s + self.s_per_rank_sequence * per_rank + self.s_per_sequence * batch + self.covered_s * coverage
        )

    def step(self, batch: Any) -> Step:
        """Term by term."""
        batch, per_rank, coverage = self.work(batch)
        terms = []
        for (
            name,
            bound,
            spec_fraction,
            spec_rate,
            fixed_s,
            s_per_rank_sequence,
            s_per_sequence,
            covered_s,
        ) in self.terms:
            time_s = fixed_s + s_per_rank_sequence * per_rank + s_per_sequence * batch + covered_s * coverage
            spec_time_s = time_s * spec_fraction
            terms.append(Term(name, time_s, spec_time_s, bound, spec_time_s * spec_rate))
        return Step.of(tuple(terms))

    def work(self, batch: Any) -> tuple[Any, Any, Any]:
        """Sequences of the replica, of a dp rank, and the coverage of experts by a micro-batch of the pipeline.

        A sequence passes the stages of a pipeline one after the other: fewer sequences than stages leave stages
        idle and make no sequence faster, so a micro-batch counts as one sequence at least.
        """
        costs, pp = self.costs, self.costs.pp
        larger = np.maximum if isinstance(batch, np.ndarray) else max
        filled, per_rank = larger(batch, pp), larger(batch / costs.dp, pp)
        if not costs.expert_count:
            return filled, per_rank, 0.0
        coverage = expert_coverage_fraction(
            filled * self.tokens_per_sequence / pp,
            expert_count=costs.expert_count,
            experts_per_token=costs.experts_per_token,
        )
        return filled, per_rank, coverage

    def weights_time_fraction(self, batch: float) -> float:
        """Of a step, for reading weights and experts."""
        _, _, coverage = self.work(batch)
        weights, experts = self.terms[:2]
        read_s: float = weights.fixed_s + experts.covered_s * coverage
        return read_s / float(self.time_s(batch))


def decode_curve(
    costs: StepCosts, parameters: StepParameters, *, context_tokens: float, tokens_per_sequence: int = 1
) -> DecodeCurve:
    """The step at a mean context, verifying ``tokens_per_sequence`` positions of each sequence.

    Assumes: each weight byte is read once per step (per micro-batch of a pipeline); experts are chosen
    independently; the KV cache is read once however many positions are verified.
    """
    p, tokens = parameters, tokens_per_sequence
    kv_s = p.kv_cache * attention_read_s(costs, context_tokens=context_tokens)
    attention_s = tokens * p.flop * decode_attention_s(costs, context_tokens=context_tokens)
    bandwidth, sixteen_bit = costs.memory_bandwidth_bytes_per_s, costs.sixteen_bit_flop_per_s
    reads, state_and_matrices, others = _terms_at_any_context(costs, p, tokens)
    terms = (
        *reads,
        DecodeTerm("kv_cache", Bound.MEMORY, 1 / p.kv_cache, bandwidth, 0.0, kv_s),
        *state_and_matrices,
        DecodeTerm("attention", Bound.COMPUTE, 1 / p.flop, sixteen_bit, 0.0, attention_s),
        _sparse_index(costs, p, tokens * context_tokens),
        *others,
    )
    fixed_s = s_per_rank_sequence = s_per_sequence = covered_s = 0.0
    for _, _, _, _, fixed, per_rank_sequence, per_sequence, covered in terms:
        fixed_s += fixed
        s_per_rank_sequence += per_rank_sequence
        s_per_sequence += per_sequence
        covered_s += covered
    return DecodeCurve(
        terms=terms,
        fixed_s=fixed_s,
        s_per_rank_sequence=s_per_rank_sequence,
        s_per_sequence=s_per_sequence,
        covered_s=covered_s,
        tokens_per_sequence=tokens,
        costs=costs,
    )


Terms = tuple[DecodeTerm, ...]


@lru_cache(maxsize=512)
def _terms_at_any_context(costs: StepCosts, p: StepParameters, tokens: int) -> tuple[Terms, Terms, Terms]:
    """What no context changes, before, between and behind the terms that it does.

    Remembered, since many loads are asked of few systems.
    """
    bandwidth, memory, overhead = costs.memory_bandwidth_bytes_per_s, Bound.MEMORY, Bound.OVERHEAD
    expert_efficiency = p.weights * p.expert_weights
    exchange_s = costs.all_reduce_s_per_token + costs.all_to_all_s_per_token
    return (
        (
            DecodeTerm("weights", memory, 1 / p.weights, bandwidth, fixed_s=p.weights * costs.dense_read_s),
            DecodeTerm(
                "experts", memory, 1 / expert_efficiency, bandwidth, covered_s=expert_efficiency * costs.expert_read_s
            ),
        ),
        (
            DecodeTerm(
                "recurrent_state",
                memory,
                1 / p.kv_cache,
                bandwidth,
                s_per_rank_sequence=p.kv_cache * costs.state_s_per_sequence,
            ),
            _projections(costs, p, tokens),
            _expert_projections(costs, p, tokens),
        ),
        (
            DecodeTerm(
                "communication",
                Bound.COMMUNICATION,
                1 / p.communication,
                s_per_rank_sequence=p.communication * exchange_s * tokens,
            ),
            DecodeTerm("layer_overhead", overhead, fixed_s=layer_overhead_s(costs, p)),
            DecodeTerm("sequence_overhead", overhead, s_per_rank_sequence=p.sequence_s),
        ),
    )


def _projections(costs: StepCosts, p: StepParameters, tokens: int) -> DecodeTerm:
    """Every dense matrix, and the head."""
    dense, head_s = costs.dense_matrices, costs.head_s_per_sequence
    spec_s = dense.spec_s_per_token + head_s
    time_s = p.flop * (dense.reached_s_per_token(p.low_precision_exponent) + head_s)
    flop = dense.flop_per_token + costs.head_flop_per_sequence
    return DecodeTerm("projections", Bound.COMPUTE, spec_s / time_s, flop / spec_s, s_per_rank_sequence=time_s * tokens)


def _expert_projections(costs: StepCosts, p: StepParameters, tokens: int) -> DecodeTerm:
    experts = costs.expert_matrices
    if not experts.flop_per_token:
        return DecodeTerm("expert_projections", Bound.COMPUTE)
    spec_s = experts.spec_s_per_token
    time_s = p.flop * p.expert_flop * experts.reached_s_per_token(p.low_precision_exponent)
    return DecodeTerm(
        "expert_projections",
        Bound.COMPUTE,
        spec_s / time_s,
        experts.flop_per_token / spec_s,
        s_per_sequence=time_s * tokens,
    )


def _sparse_index(costs: StepCosts, p: StepParameters, context_tokens: float) -> DecodeTerm:
    """Scoring every token of the context in 8 bits, to choose the ones that are attended to."""
    spec_s = context_tokens * sum([each.index_compute_s_per_token for each in costs.attention])
    reach = low_precision_reach(
        rate_ratio=costs.index_flop_per_s / costs.sixteen_bit_flop_per_s, exponent=p.low_precision_exponent
    )
    factor = p.flop * reach
    return DecodeTerm("sparse_index", Bound.COMPUTE, 1 / factor, costs.index_flop_per_s, 0.0, factor * spec_s)


def attention_read_s(costs: StepCosts, *, context_tokens: Any) -> Any:
    """Reading one sequence's KV cache at spec bandwidth, without its recurrent state."""
    return sum(
        [
            smaller(context_tokens, each.cap_tokens) * each.read_s_per_token
            + context_tokens * each.index_read_s_per_token
            for each in costs.attention
        ]
    )


def decode_attention_s(costs: StepCosts, *, context_tokens: Any) -> Any:
    """Attending from one token to its context, in arithmetic at the 16-bit rate."""
    return sum([smaller(context_tokens, each.cap_tokens) * each.decode_compute_s_per_token for each in costs.attention])
