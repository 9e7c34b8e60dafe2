"""A replica under load: a closed loop of requests in flight, by Little's law.

Every request in flight is prefilled once and decoded ``osl`` times per cycle. The prompts' prefill either stalls
the decoding of others (``stall``) or waits in the queue (``ttft_queue``): two sides of one conservation law.
Fitted to 1,407 published closed-loop runs; what a scheduler does with bursts is not in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from math import floor
from typing import NamedTuple

from service.sizing.decode import DecodeCurve, decode_curve
from service.sizing.parameters import StepParameters
from service.sizing.prefill import prompt_latency_s, prompt_share_s
from service.sizing.step import Step, StepCosts, Term


@dataclass(frozen=True, slots=True)
class Drafting:
    """Speculative decoding: a step verifies ``draft_tokens + 1`` positions and keeps ``acceptance_length_tokens``.

    ``drafts_with_a_layer``: each draft costs a pass through one more decoder layer and the head (MTP, EAGLE);
    n-gram look-ups cost nothing here.
    """

    draft_tokens: int
    acceptance_length_tokens: float
    drafts_with_a_layer: bool


NO_DRAFTING = Drafting(draft_tokens=0, acceptance_length_tokens=1.0, drafts_with_a_layer=False)


class Load(NamedTuple):
    """What the replica is asked to do, with every length resolved."""

    isl_tokens: float
    osl_tokens: float
    cached_prefix_tokens: int
    running_limit: int
    tokens_per_pass: int
    drafting: Drafting = NO_DRAFTING

    @property
    def mean_context_tokens(self) -> float:
        """Of a running sequence, over its life in decode."""
        return self.isl_tokens + self.osl_tokens / 2

    @property
    def new_prompt_tokens(self) -> float:
        return self.isl_tokens - self.cached_prefix_tokens


class ServingPoint(NamedTuple):
    """One concurrency. ``tpot_s`` is ``None`` when a request has one output token.

    ``waiting_s`` is the part of the TTFT that a request waits for a place among the running ones.
    """

    concurrency: int
    running: int
    step_time_s: float
    ttft_s: float
    waiting_s: float
    tpot_s: float | None
    requests_per_s: float
    prefill_time_fraction: float


@dataclass(frozen=True, slots=True)
class ReplicaUnderLoad:
    """A replica and its load; ``at`` gives any concurrency.

    ``prompt_s`` is what one prompt takes from the busy replica and ``own_prompt_s`` how long its own arithmetic lasts;
    ``plain`` is the step that a drafting layer is a part of.
    """

    parameters: StepParameters
    load: Load
    curve: DecodeCurve
    plain: DecodeCurve
    prompt_s: float
    own_prompt_s: float
    layer_count: int

    @classmethod
    def of(cls, costs: StepCosts, parameters: StepParameters, load: Load, *, layer_count: int) -> "ReplicaUnderLoad":
        context = load.mean_context_tokens
        plain = decode_curve(costs, parameters, context_tokens=context)
        verified = load.drafting.draft_tokens + 1
        return cls(
            parameters=parameters,
            load=load,
            curve=decode_curve(costs, parameters, context_tokens=context, tokens_per_sequence=verified)
            if verified > 1
            else plain,
            plain=plain,
            prompt_s=prompt_share_s(
                costs, parameters, prompt_tokens=load.new_prompt_tokens, cached_tokens=load.cached_prefix_tokens
            ),
            own_prompt_s=prompt_latency_s(
                costs,
                parameters,
                prompt_tokens=load.new_prompt_tokens,
                cached_tokens=load.cached_prefix_tokens,
                tokens_per_pass=load.tokens_per_pass,
            ),
            layer_count=layer_count,
        )

    def drafting_time_s(self, batch: float) -> float:
        """Per draft one more decoder layer, and the head again."""
        drafting, costs = self.load.drafting, self.curve.costs
        if not drafting.drafts_with_a_layer:
            return 0.0
        head_s = self.parameters.weights * costs.head_read_s
        head_s += self.parameters.flop * max(batch / costs.dp, costs.pp) * costs.head_s_per_sequence
        return drafting.draft_tokens * ((float(self.plain.time_s(batch)) - head_s) / self.layer_count + head_s)

    def step(self, batch: float) -> Step:
        """One decode step with its drafter, term by term."""
        step = self.curve.step(batch)
        drafting_s = self.drafting_time_s(batch)
        return Step.of((*step.terms, Term("drafting", drafting_s, 0.0, step.bound))) if drafting_s else step

    def at(self, concurrency: int) -> ServingPoint:
        """The closed loop at a concurrency; what exceeds the running limit waits its turn.

        ::

            TPOT = step / accepted + stall * running / osl * prompt
            TTFT = request + own * own_prompt + steps * step / accepted + queue * running * prompt
            residence = TTFT + (osl - 1) * TPOT, at least running * prompt + (osl - 1) * step / accepted
            requests/s = running / residence
            waiting = (concurrency / running - 1) * residence

        The bound is what the replica has to do for its running requests in one cycle: with few output tokens the
        fitted shares of stall and queue alone would serve more prompts than the arithmetic allows. The steps before
        the first token are plain decode steps; counting their stalls too fitted no better.
        """
        load, p = self.load, self.parameters
        osl_tokens, prompt_s = load.osl_tokens, self.prompt_s
        running = min(concurrency, load.running_limit)
        step_time_s = float(self.curve.time_s(running)) + self.drafting_time_s(running)
        token_s = step_time_s / load.drafting.acceptance_length_tokens
        tpot_s = token_s + p.stall * running / osl_tokens * prompt_s
        ttft_s = (
            p.ttft_request_s
            + p.ttft_own_prefill * self.own_prompt_s
            + p.ttft_steps * token_s
            + p.ttft_queue * running * prompt_s
        )
        gaps = osl_tokens - 1
        residence_s = max(ttft_s + gaps * tpot_s, running * prompt_s + gaps * token_s)
        waiting_s = (concurrency / running - 1) * residence_s
        return ServingPoint(
            concurrency,
            running,
            step_time_s,
            ttft_s=residence_s - gaps * tpot_s + waiting_s,
            waiting_s=waiting_s,
            tpot_s=tpot_s if gaps else None,
            requests_per_s=running / residence_s,
            prefill_time_fraction=prompt_s / (prompt_s + osl_tokens * token_s / running),
        )


def largest_concurrency(share_of_limit: Callable[[int], float], *, most: int) -> int:
    """The largest concurrency of 1 to ``most`` whose share of a limit is at most 1; 0 when a single request exceeds it.

    Assumes: the share does not fall as the concurrency grows. Times grow nearly in a straight line with it, so the
    next guess lies on the line between the two ends, and every third one halves what is left.

    >>> largest_concurrency(lambda concurrency: concurrency / 37, most=1024)
    37
    """
    high, high_share = most, share_of_limit(most)
    if high_share <= 1:
        return most
    low, low_share = 1, share_of_limit(1)
    if low_share > 1:
        return 0
    by_line = cycle((True, True, False))
    while high - low > 1:
        middle = (low + high) // 2
        if next(by_line):
            guess = low + int((1 - low_share) / (high_share - low_share) * (high - low))
            middle = min(max(guess, low + 1), high - 1)
        share = share_of_limit(middle)
        if share <= 1:
            low, low_share = middle, share
        else:
            high, high_share = middle, share
    return low


def largest_concurrency_near(shares_of_limit: Callable[..., list[float]], guess: int, *, most: int) -> int:
    """As ``largest_concurrency``, in fewer calls: from a guess along the share's own slope.

    ``shares_of_limit`` takes several concurrencies: a guess and the next one are asked about together.

    >>> largest_concurrency_near(lambda *several: [c / 37 for c in several], 50, most=1024)
    37
    """
    found = guess or 1
    for _ in range(GUESSES):
        share, beyond = shares_of_limit(found, found + 1)
        if share > 1 and found == 1:
            return 0
        if share <= 1 and (found == most or beyond > 1):
            return found
        slope = beyond - share
        found = min(max(1, found + floor((1 - share) / slope)), most) if slope > 0 else most
    return largest_concurrency(lambda concurrency: shares_of_limit(concurrency)[0], most=most)


GUESSES = 6
