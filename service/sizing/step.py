"""What a step of a replica is made of: its costs per unit of work, and the terms of its time.

``StepCosts`` holds every cost at the rates that vendors print, in seconds per unit of work, for one model,
scheme, layout and accelerator. ``decode.py`` and ``prefill.py`` multiply out the work and scale each term by
what machines reach (``StepParameters``). The sum of the terms, not their maximum, fits measurements best; with
``StepParameters.roofline()`` it is therefore never below either arm of the roofline.

Numbers and NumPy arrays both work as batches and lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from service.sizing.parameters import StepParameters
from service.sizing.roofline import Bound


def smaller(first: Any, limit: float) -> Any:
    """The smaller of a number and a limit, or element by element of an array."""
    if isinstance(first, np.ndarray):
        return np.minimum(first, limit)
    return min(limit, first)


@dataclass(frozen=True, slots=True)
class AttentionCost:
    """Attending to one token of context, of all the layers of one kind, per rank at printed rates.

    A window (or a chunk, or the top k of sparse attention) caps how many tokens are attended to. Index keys are
    read and multiplied for every token.
    """

    cap_tokens: float
    read_s_per_token: float
    decode_compute_s_per_token: float
    prefill_compute_s_per_token: float
    index_read_s_per_token: float
    index_compute_s_per_token: float


@dataclass(frozen=True, slots=True)
class MatrixCost:
    """Multiplying one token with matrices, per rank: a part for each rate at which some of them compute.

    Each part is its seconds at the printed rate and that rate over the 16-bit one.
    """

    flop_per_token: float
    spec_s_per_token: float
    parts: tuple[tuple[float, float], ...]

    def reached_s_per_token(self, exponent: float) -> float:
        """Seconds when a narrow format reaches only a power of its ratio to the 16-bit rate."""
        return sum(
            [seconds * low_precision_reach(rate_ratio=ratio, exponent=exponent) for seconds, ratio in self.parts]
        )


class Launches(Enum):
    """How many kernels a layer launches: latent and linear attention more, a sparse indexer more again."""

    PLAIN = "plain"
    LATENT = "latent"
    INDEXED = "indexed"


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """What the work of a replica costs per unit, per rank, at the rates that vendors print; compared by identity.

    Token and sequence counts are of the whole replica: division among its tp, pp and dp ranks is in here.
    ``expert_read_s`` is for all experts of all layers. What machines reach of the rates is not in here: that is
    ``StepParameters``.
    """

    dense_read_s: float
    expert_read_s: float
    expert_count: int
    experts_per_token: int
    state_s_per_sequence: float
    attention: tuple[AttentionCost, ...]
    dense_matrices: MatrixCost
    head_read_s: float
    head_flop_per_sequence: float
    expert_matrices: MatrixCost
    all_reduce_s_per_token: float
    all_to_all_s_per_token: float
    memory_bandwidth_bytes_per_s: float
    sixteen_bit_flop_per_s: float
    index_flop_per_s: float
    layer_count: int
    launches: Launches
    pp: int
    dp: int

    @property
    def head_s_per_sequence(self) -> float:
        return self.head_flop_per_sequence / self.sixteen_bit_flop_per_s


class Term(NamedTuple):
    """A named share of a step, in seconds as predicted and at printed rates, and what kind of limit it is.

    ``amount`` is the work of one rank: bytes of a memory term, FLOP of a compute term.
    """

    name: str
    time_s: Any
    spec_time_s: Any
    bound: Bound
    amount: Any = 0.0


class Step(NamedTuple):
    """The terms of one step, their sums by kind of limit, and what follows from them."""

    terms: tuple[Term, ...]
    time_s: Any
    time_s_by_bound: Mapping[Bound, Any]
    spec_time_s_by_bound: Mapping[Bound, Any]
    amount_by_bound: Mapping[Bound, Any]

    @classmethod
    def of(cls, terms: tuple[Term, ...]) -> "Step":
        times_s, spec_times_s, amounts = (dict.fromkeys(BOUNDS, 0.0) for _ in range(3))
        for _, time_s, spec_time_s, bound, amount in terms:
            times_s[bound] += time_s
            spec_times_s[bound] += spec_time_s
            amounts[bound] += amount
        return cls(terms, sum([term.time_s for term in terms]), times_s, spec_times_s, amounts)

    @property
    def mfu(self) -> Any:
        """Arithmetic done, each at its own printed rate, as a share of the step."""
        return self.spec_time_s_by_bound[Bound.COMPUTE] / self.time_s

    @property
    def mbu(self) -> Any:
        """Bytes moved at the printed bandwidth, as a share of the step."""
        return self.spec_time_s_by_bound[Bound.MEMORY] / self.time_s

    @property
    def arithmetic_intensity_flop_per_byte(self) -> Any:
        """FLOP of all compute terms over bytes of all memory terms."""
        return self.amount_by_bound[Bound.COMPUTE] / self.amount_by_bound[Bound.MEMORY]

    @property
    def bound(self) -> Bound:
        """The kind of limit with the most seconds."""
        return max(BOUNDS, key=self.time_s_by_bound.__getitem__)


BOUNDS = tuple(Bound)


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


def low_precision_reach(*, rate_ratio: float, exponent: float) -> float:
    """Factor on the time of arithmetic in a narrow format: its rate counts as 16 bit x ratio^exponent.

    >>> low_precision_reach(rate_ratio=4.0, exponent=0.5)  # a fourfold rate reaches twofold
    2.0
    """
    reach: float = max(1.0, rate_ratio) ** (1 - exponent)
    return reach


def layer_overhead_s(costs: StepCosts, parameters: StepParameters) -> float:
    """Fixed cost of a step: kernel launches and small kernels, per layer; less on faster devices.

    Latent and linear attention launch more kernels per layer; sparse attention's indexer twice the extra.
    Assumes: a release of the engine from 2026; older ones launch more (40 % a year in the fit).
    """
    match costs.launches:
        case Launches.PLAIN:
            factor = 1.0
        case Launches.LATENT:
            factor = parameters.layer_overhead_latent
        case Launches.INDEXED:
            factor = 2 * parameters.layer_overhead_latent - 1
    relative_bandwidth = costs.memory_bandwidth_bytes_per_s / REFERENCE_BANDWIDTH_BYTES_PER_S
    scale: float = relative_bandwidth**-parameters.overhead_bandwidth_exponent
    return parameters.layer_overhead_s * factor * costs.layer_count * scale


REFERENCE_BANDWIDTH_BYTES_PER_S = 3.35e12  # where the per-layer overhead was fitted: H100 SXM
