"""Prefill: reading a prompt. Compute-bound but for short prompts, whose weights still have to be read.

A prompt costs a busy replica its share of all devices; alone, it runs on one data-parallel rank and passes the
stages of a pipeline one after the other.
"""

from functools import lru_cache
from math import ceil

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


@lru_cache(maxsize=128)
def prompt_terms(
    costs: StepCosts, parameters: StepParameters, *, prompt_tokens: float, cached_tokens: int = 0
) -> tuple[Term, ...]:
    """The arithmetic and communication of one prompt on one dp rank, its stages working side by side.

    Attention of a new token reaches over the cached ones and, on average, half of the new ones. Remembered, since an
    answer takes the same prompt as a share of a busy replica, by its latency and term by term.
    """
    p, tokens, context = parameters, prompt_tokens, cached_tokens + prompt_tokens / 2
    dense, experts = costs.dense_matrices, costs.expert_matrices
    exponent = p.low_precision_exponent
    expert_factor = p.prefill * p.expert_flop
    attention_s = tokens * sum(
        [smaller(context, each.cap_tokens) * each.prefill_compute_s_per_token for each in costs.attention]
    )
    index_s = tokens * context * sum([each.index_compute_s_per_token for each in costs.attention])
    index_reach = low_precision_reach(
        rate_ratio=costs.index_flop_per_s / costs.sixteen_bit_flop_per_s, exponent=exponent
    )
    exchange_s = tokens * (costs.all_reduce_s_per_token + costs.all_to_all_s_per_token)
    compute = Bound.COMPUTE
    return (
        Term(
            "projections",
            p.prefill * tokens * dense.reached_s_per_token(exponent),
            tokens * dense.spec_s_per_token,
            compute,
            tokens * dense.flop_per_token,
        ),
        Term(
            "expert_projections",
            expert_factor * tokens * experts.reached_s_per_token(exponent),
            tokens * experts.spec_s_per_token,
            compute,
            tokens * experts.flop_per_token,
        ),
        Term("attention", p.prefill * attention_s, attention_s, compute, attention_s * costs.sixteen_bit_flop_per_s),
        Term("sparse_index", p.prefill * index_reach * index_s, index_s, compute, index_s * costs.index_flop_per_s),
        Term("communication", p.prefill_communication * exchange_s, exchange_s, Bound.COMMUNICATION),
    )


def prompt_share_s(
    costs: StepCosts, parameters: StepParameters, *, prompt_tokens: float, cached_tokens: int = 0
) -> float:
    """What one prompt takes from a busy replica, whose dp ranks read other prompts meanwhile."""
    terms = prompt_terms(costs, parameters, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)
    return float(sum([term.time_s / (1 if term.name == "expert_projections" else costs.dp) for term in terms]))


def prompt_latency_s(
    costs: StepCosts, parameters: StepParameters, *, prompt_tokens: float, cached_tokens: int, tokens_per_pass: int
) -> float:
    """How long the arithmetic of one prompt takes from its first token to its last.

    Its ``m`` passes follow each other through the pp stages: ``(m + pp - 1) / m`` of the side-by-side time.
    """
    terms = prompt_terms(costs, parameters, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)
    passes = ceil(prompt_tokens / tokens_per_pass)
    return float(sum([term.time_s for term in terms])) * (passes + costs.pp - 1) / passes


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
    bandwidth = costs.memory_bandwidth_bytes_per_s
    reads = (
        Term("weights", parameters.weights * weights_s, weights_s, Bound.MEMORY, weights_s * bandwidth),
        Term(
            "experts",
            parameters.weights * parameters.expert_weights * experts_s,
            experts_s,
            Bound.MEMORY,
            experts_s * bandwidth,
        ),
        Term("layer_overhead", layer_overhead_s(costs, parameters), 0.0, Bound.OVERHEAD),
    )
    in_turn = (passes + costs.pp - 1) / passes  # stages wait for each other's passes
    work = [
        Term(name, time_s * in_turn, spec_time_s, bound, amount)
        for name, time_s, spec_time_s, bound, amount in prompt_terms(
            costs, parameters, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens
        )
    ]
    return Step.of((*reads, *work))
