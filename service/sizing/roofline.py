"""The roofline: balance points, arithmetic intensity and the batch at which decode turns compute-bound.

Source of the model: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model",
CACM 52(4), 2009. Everything here is at the rates a vendor prints; ``decode.py`` and ``prefill.py`` add what machines
reach.
"""

from enum import StrEnum
from math import inf, log


class Bound(StrEnum):
    """What limits a phase: the largest group of its terms."""

    MEMORY = "memory"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    OVERHEAD = "overhead"


def balance_point_flop_per_byte(*, peak_flop_per_s: float, memory_bandwidth_bytes_per_s: float) -> float:
    """FLOP that the accelerator can do in the time it reads a byte, at one precision and density.

    >>> balance_point_flop_per_byte(peak_flop_per_s=10e15, memory_bandwidth_bytes_per_s=8e12)  # GB200, NVFP4 dense
    1250.0
    """
    return peak_flop_per_s / memory_bandwidth_bytes_per_s


def decode_arithmetic_intensity_flop_per_byte(*, bytes_per_parameter: float) -> float:
    """The textbook figure for one sequence: 2 FLOP for each parameter read.

    Assumes a dense model, no KV cache, no block scales.

    >>> decode_arithmetic_intensity_flop_per_byte(bytes_per_parameter=0.5)  # 4 bit
    4.0
    """
    return 2 / bytes_per_parameter


def weights_only_crossover_batch(
    *, balance_point_flop_per_byte: float, bytes_per_parameter: float, experts_per_expert_used: float = 1.0
) -> float:
    """Batch at which a decode step that reads only weights turns compute-bound.

    Each parameter read serves ``batch`` sequences with 2 FLOP, so the step's intensity is
    ``2 * batch / bytes_per_parameter``; the crossover is where it meets the balance point. When all E
    experts are read and k serve a token (``experts_per_expert_used`` = E / k), the batch grows by that.

    The precision of the weights and of the computation are two inputs: FP8 weights multiplied at the NVFP4
    rate give twice the figure of FP8 weights at the FP8 rate.

    >>> weights_only_crossover_batch(balance_point_flop_per_byte=1250, bytes_per_parameter=0.5)
    312.5
    >>> weights_only_crossover_batch(balance_point_flop_per_byte=1250, bytes_per_parameter=1)
    625.0
    """
    return balance_point_flop_per_byte * bytes_per_parameter / 2 * experts_per_expert_used


def crossover_batch(
    *,
    fixed_read_time_s: float,
    expert_read_time_s: float,
    expert_count: int,
    experts_per_token: int,
    read_time_s_per_sequence: float,
    compute_time_s_per_sequence: float,
) -> float:
    """Batch at which the compute time of a decode step overtakes its memory time.

    Solves, for the batch B of one rank's step::

        B * compute = fixed_read + expert_read * coverage(B) + B * read_per_sequence
        coverage(B) = 1 - (1 - k/E)**B

    ``expert_read_time_s`` is for all experts; coverage is the expected share of them that B tokens touch
    under independent routing. The difference of both sides is convex in B and negative at 0, so it crosses
    zero at most once, and Newton's method from above descends onto the root.

    Infinity when a sequence's own reads take at least as long as its arithmetic: memory-bound at every batch.

    >>> batch = crossover_batch(  # 70e9 four-bit parameters on 8 TB/s and 10 PFLOP/s, no KV cache
    ...     fixed_read_time_s=35e9 / 8e12,
    ...     expert_read_time_s=0,
    ...     expert_count=0,
    ...     experts_per_token=0,
    ...     read_time_s_per_sequence=0,
    ...     compute_time_s_per_sequence=140e9 / 10e15,
    ... )
    >>> round(batch, 6)
    312.5
    """
    gain_s_per_sequence = compute_time_s_per_sequence - read_time_s_per_sequence
    if gain_s_per_sequence <= 0:
        return inf
    batch = (fixed_read_time_s + expert_read_time_s) / gain_s_per_sequence
    if experts_per_token >= expert_count:
        return batch
    untouched = 1 - experts_per_token / expert_count
    for _ in range(100):
        uncovered = untouched**batch
        excess_s = batch * gain_s_per_sequence - fixed_read_time_s - expert_read_time_s * (1 - uncovered)
        step = excess_s / (gain_s_per_sequence + expert_read_time_s * uncovered * log(untouched))
        batch -= step
        if abs(step) <= 1e-9 * batch:
            break
    return batch
