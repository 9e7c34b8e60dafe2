"""What a step of a replica is made of: its costs per unit of work, and the terms of its time.

``StepCosts`` holds every cost at the rates that vendors print, in seconds per unit of work, for one model,
scheme, layout and accelerator. ``decode.py`` and ``prefill.py`` multiply out the work and scale each term by
what machines reach (``StepParameters``). The sum of the terms, not their maximum, fits measurements best; with
``StepParameters.roofline()`` it is therefore never below either arm of the roofline.

Numbers and NumPy arrays both work as batches and lengths.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.sizing.roofline import Bound


def smaller(first: Any, limit: float) -> Any:
    """The smaller of a number and a limit, or element by element of an array."""
    if isinstance(first, np.ndarray):
        return np.minimum(first, limit)
    return min(limit, first)


def larger(first: Any, limit: float) -> Any:
    if isinstance(first, np.ndarray):
        return np.maximum(first, limit)
    return max(limit, first)


@dataclass(frozen=True, slots=True)
class AttentionCost:
    """Attending to one token of context, of all the layers of one kind, per rank at spec rates.

    A window (or a chunk, or the top k of sparse attention) caps how many tokens are attended to. Index keys are
    read and multiplied for every token.
    """

    cap_tokens: float
    read_s_per_token: float
    decode_compute_s_per_token: float
    prefill_compute_s_per_token: float
    index_read_s_per_token: float
    index_compute_s_per_token: float

    def slowed(self, factor: float) -> "AttentionCost":
        return replace(
            self,
            decode_compute_s_per_token=self.decode_compute_s_per_token * factor,
            prefill_compute_s_per_token=self.prefill_compute_s_per_token * factor,
            index_compute_s_per_token=self.index_compute_s_per_token * factor,
        )


@dataclass(frozen=True, slots=True)
class MatrixCost:
    """Multiplying one token with matrices, per rank. ``reached`` divides by the rate that low precision reaches."""

    spec_s_per_token: float
    reached_s_per_token: float

    def slowed(self, factor: float) -> "MatrixCost":
        return MatrixCost(self.spec_s_per_token * factor, self.reached_s_per_token * factor)


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds per unit of work of a replica, per rank.

    Token and sequence counts are of the whole replica: division among its tp, pp and dp ranks is in here.
    ``expert_read_s`` is for all experts of all layers.
    """

    dense_read_s: float
    expert_read_s: float
    expert_count: int
    experts_per_token: int
    state_s_per_sequence: float
    attention: tuple[AttentionCost, ...]
    dense_matrices: MatrixCost
    head_read_s: float
    head_s_per_sequence: float
    expert_matrices: MatrixCost
    all_reduce_s_per_token: float
    all_to_all_s_per_token: float
    overhead_s: float
    memory_bandwidth_bytes_per_s: float
    pp: int
    dp: int

    def at_clock(self, clock_fraction: float) -> "StepCosts":
        """All arithmetic at a lower clock; memory and links as they are."""
        if clock_fraction == 1:
            return self
        slower = 1 / clock_fraction
        return replace(
            self,
            attention=tuple(each.slowed(slower) for each in self.attention),
            dense_matrices=self.dense_matrices.slowed(slower),
            head_s_per_sequence=self.head_s_per_sequence * slower,
            expert_matrices=self.expert_matrices.slowed(slower),
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A named share of a step, in seconds as predicted and at spec rates, and what kind of limit it is."""

    name: str
    time_s: Any
    spec_time_s: Any
    bound: Bound


@dataclass(frozen=True, slots=True)
class Step:
    """The terms of one step and what follows from them."""

    terms: tuple[Term, ...]
    time_s: Any

    @classmethod
    def of(cls, terms: tuple[Term, ...]) -> "Step":
        return cls(terms, sum(term.time_s for term in terms))

    def spec_time_s(self, bound: Bound) -> Any:
        """Memory or compute time at the printed rates: an arm of the roofline."""
        return sum(term.spec_time_s for term in self.terms if term.bound is bound)

    @property
    def mfu(self) -> Any:
        """Arithmetic done, each at its own dense rate, as a share of the step."""
        return self.spec_time_s(Bound.COMPUTE) / self.time_s

    @property
    def mbu(self) -> Any:
        """Bytes moved at the printed bandwidth, as a share of the step."""
        return self.spec_time_s(Bound.MEMORY) / self.time_s

    @property
    def bound(self) -> Bound:
        """The kind of limit with the most seconds."""
        seconds = dict.fromkeys(Bound, 0.0)
        for term in self.terms:
            seconds[term.bound] += term.time_s
        return max(seconds, key=lambda bound: seconds[bound])

    def time_fraction(self, name: str) -> Any:
        return sum(term.time_s for term in self.terms if term.name == name) / self.time_s


def expert_coverage_fraction(tokens: Any, *, expert_count: int, experts_per_token: int) -> Any:
    """Expected share of a layer's experts that at least one of ``tokens`` tokens is sent to.

    Assumes independent routing: ``1 - (1 - k/E)^tokens``.

    >>> expert_coverage_fraction(1, expert_count=128, experts_per_token=8)  # one token: k / E
    0.0625
    >>> round(expert_coverage_fraction(64, expert_count=128, experts_per_token=8), 3)  # nearly all are read
    0.984
    """
    if not expert_count:
        return 0.0
    return 1 - (1 - experts_per_token / expert_count) ** tokens
