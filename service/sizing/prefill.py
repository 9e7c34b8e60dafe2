"""Prefill: reading a prompt. Compute-bound but for short prompts, whose weights still have to be read."""

from math import ceil
from typing import Any

from service.sizing.parameters import StepParameters
from service.sizing.roofline import Bound
from service.sizing.step import Step, StepCosts, Term, expert_coverage_fraction, smaller


def prompt_terms(
    costs: StepCosts, parameters: StepParameters, *, prompt_tokens: Any, cached_tokens: Any = 0
) -> tuple[Term, ...]:
    """The arithmetic and communication of one prompt: what it takes from a replica that is busy anyway.

    Attention of a new token reaches over the cached ones and, on average, half of the new ones.
    """
    p = parameters
    tokens = prompt_tokens
    context = cached_tokens + tokens / 2
    attention_s = (
        tokens
        / costs.dp
        * sum(
            smaller(context, each.cap_tokens) * each.prefill_compute_s_per_token
            + context * each.index_compute_s_per_token
            for each in costs.attention
        )
    )
    dense_s = tokens * costs.dense_matrices.spec_s_per_token / costs.dp
    dense_reached_s = tokens * costs.dense_matrices.reached_s_per_token / costs.dp
    expert_s = tokens * costs.expert_matrices.spec_s_per_token
    expert_reached_s = tokens * costs.expert_matrices.reached_s_per_token
    communication_s = tokens * (costs.all_reduce_s_per_token + costs.all_to_all_s_per_token) / costs.dp
    return (
        Term("projections", p.prefill * dense_reached_s, dense_s, Bound.COMPUTE),
        Term("expert_projections", p.prefill * p.expert_flop * expert_reached_s, expert_s, Bound.COMPUTE),
        Term("attention", p.prefill * attention_s, attention_s, Bound.COMPUTE),
        Term("communication", p.prefill_communication * communication_s, communication_s, Bound.COMMUNICATION),
    )


def prompt_time_s(
    costs: StepCosts, parameters: StepParameters, *, prompt_tokens: float, cached_tokens: int = 0
) -> float:
    terms = prompt_terms(costs, parameters, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)
    return float(sum(term.time_s for term in terms))


def prefill_step(
    costs: StepCosts,
    parameters: StepParameters,
    *,
    prompt_tokens: int,
    cached_tokens: int = 0,
    tokens_per_pass: int,
) -> Step:
    """One prompt alone, in passes of at most ``tokens_per_pass`` tokens that each read all weights they use."""
    passes = ceil(prompt_tokens / tokens_per_pass)
    coverage = expert_coverage_fraction(
        prompt_tokens / passes, expert_count=costs.expert_count, experts_per_token=costs.experts_per_token
    )
    weights_s = passes * costs.dense_read_s
    experts_s = passes * coverage * costs.expert_read_s
    reads = (
        Term("weights", parameters.weights * weights_s, weights_s, Bound.MEMORY),
        Term("experts", parameters.weights * parameters.expert_weights * experts_s, experts_s, Bound.MEMORY),
        Term("layer_overhead", costs.overhead_s, 0.0, Bound.OVERHEAD),
    )
    return Step.of(reads + prompt_terms(costs, parameters, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens))
