"""At which batch decode stops being memory-bound: the textbook figure, the real one, and per operator."""

from math import inf
from typing import NamedTuple

from service.sizing.decode import DecodeCurve
from service.sizing.roofline import (
    Bound,
    balance_point_flop_per_byte,
    crossover_batch,
    decode_arithmetic_intensity_flop_per_byte,
    weights_only_crossover_batch,
)
from service.sizing.step import Step, StepCosts


class OperatorBound(NamedTuple):
    """A group of operators at the asked batch: its own intensity and what limits it."""

    name: str
    bound: Bound
    arithmetic_intensity_flop_per_byte: float


class Crossover(NamedTuple):
    """``batch`` at printed rates and ``attained_batch`` at fitted efficiencies; infinity is never.

    Both count sequences of the replica, so each of the pp micro-batches of a pipeline holds batch / pp of them.
    """

    balance_point_flop_per_byte: float
    arithmetic_intensity_flop_per_byte: float
    arithmetic_intensity_at_batch_flop_per_byte: float
    weights_only_batch: float
    batch: float
    attained_batch: float
    bound: Bound
    reason: str
    operators: tuple[OperatorBound, ...]


def real_crossover_batch(curve: DecodeCurve, *, is_printed: bool) -> float:
    """The batch where arithmetic overtakes reading, with real bytes, KV reads and expert coverage.

    At the rates that the curve reaches, or (``is_printed``) at those that vendors print. In sequences of the replica: a
    dp rank holds batch / dp of them, and a micro-batch of a pipeline batch / pp.
    """
    costs, pp, dp = curve.costs, curve.costs.pp, curve.costs.dp
    fixed_read_s = expert_read_s = read_s = compute_s = 0.0
    for _, bound, spec_fraction, _, fixed_s, s_per_rank_sequence, s_per_sequence, covered_s in curve.terms:
        share = spec_fraction if is_printed else 1.0
        per_sequence_s = share * (s_per_rank_sequence / dp + s_per_sequence)
        if bound is Bound.MEMORY:
            fixed_read_s += share * fixed_s
            expert_read_s += share * covered_s
            read_s += per_sequence_s
        elif bound is Bound.COMPUTE:
            compute_s += per_sequence_s
    per_micro_batch = crossover_batch(
        fixed_read_time_s=fixed_read_s,
        expert_read_time_s=expert_read_s,
        expert_count=costs.expert_count,
        experts_per_token=costs.experts_per_token,
        read_time_s_per_sequence=read_s * pp,
        compute_time_s_per_sequence=compute_s * pp,
    )
    return per_micro_batch * pp


def crossover(
    costs: StepCosts,
    attained: DecodeCurve,
    *,
    batch: int,
    context_tokens: float,
    weight_element_bytes: float,
    compute_flop_per_s: float,
) -> Crossover:
    """Both figures, and what each group of operators is bound by at the asked batch.

    ``attained`` is the decode step at the fitted efficiencies; its terms know what they take at printed rates.
    """
    balance = balance_point_flop_per_byte(
        peak_flop_per_s=compute_flop_per_s, memory_bandwidth_bytes_per_s=costs.memory_bandwidth_bytes_per_s
    )
    step, at_spec = attained.step(batch), real_crossover_batch(attained, is_printed=True)
    memory_s, compute_s = (step.spec_time_s_by_bound[each] for each in (Bound.MEMORY, Bound.COMPUTE))
    return Crossover(
        balance_point_flop_per_byte=balance,
        arithmetic_intensity_flop_per_byte=decode_arithmetic_intensity_flop_per_byte(
            bytes_per_parameter=weight_element_bytes
        ),
        arithmetic_intensity_at_batch_flop_per_byte=step.arithmetic_intensity_flop_per_byte,
        weights_only_batch=weights_only_crossover_batch(
            balance_point_flop_per_byte=balance, bytes_per_parameter=weight_element_bytes
        ),
        batch=at_spec,
        attained_batch=real_crossover_batch(attained, is_printed=False),
        bound=Bound.COMPUTE if compute_s > memory_s else Bound.MEMORY,
        reason=_reason(costs, batch=batch, crossover=at_spec, context_tokens=context_tokens),
        operators=_operators(step),
    )


def _reason(costs: StepCosts, *, batch: int, crossover: float, context_tokens: float) -> str:
    if crossover == inf:
        return (
            f"never at printed rates: at {context_tokens:g} tokens of context a sequence's own KV reads take longer "
            "than its arithmetic, so more sequences do not help"
        )
    side = "below" if batch < crossover else "at or above"
    experts = " with the experts that such a batch reads" if costs.expert_count else ""
    return (
        f"at printed rates and {context_tokens:g} tokens of context arithmetic overtakes reading at {crossover:.0f} "
        f"sequences{experts}; {batch} is {side} it"
    )


OPERATORS = {  # what is read for each group of operators, and what is computed with it
    "projections": ("weights", ("projections",)),
    "experts": ("experts", ("expert_projections",)),
    "attention": ("kv_cache", ("attention", "sparse_index")),
}


def _operators(step: Step) -> tuple[OperatorBound, ...]:
    """Each group against its own reads, in FLOP per byte, and which of the two takes longer at printed rates."""
    terms = {term.name: term for term in step.terms}
    bounds = []
    for name, (read, computed) in OPERATORS.items():
        if not terms[read].amount:
            continue
        flop = sum([terms[each].amount for each in computed])
        compute_s = sum([terms[each].spec_time_s for each in computed])
        bound = Bound.COMPUTE if compute_s > terms[read].spec_time_s else Bound.MEMORY
        bounds.append(OperatorBound(name, bound, flop / terms[read].amount))
    return tuple(bounds)
