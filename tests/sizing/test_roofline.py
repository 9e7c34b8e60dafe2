"""Crossover batches, worked out by hand."""

from math import inf

import pytest

from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.question import PrecisionAsked, WorkloadAsked
from service.sizing.roofline import crossover_batch, weights_only_crossover_batch
from service.sizing.workload import Length
from tests.sizing.examples import answer

GB200_BANDWIDTH = 8e12
NVFP4_RATE, BF16_RATE = 10e15, 2.5e15


def test_weights_only_crossover_grows_by_experts_per_expert_used() -> None:
    # 8 of 128 experts serve a token and all are read: each byte read does 1/16 of the work of a dense model.
    dense = weights_only_crossover_batch(balance_point_flop_per_byte=1250, bytes_per_parameter=0.5)
    experts = weights_only_crossover_batch(
        balance_point_flop_per_byte=1250, bytes_per_parameter=0.5, experts_per_expert_used=128 / 8
    )
    assert dense == 312.5
    assert experts == 312.5 * 16


def test_kv_reads_move_the_crossover_up() -> None:
    # Reading takes 10 + B, arithmetic 3 B: they meet at B = 5.
    assert crossover_batch(
        fixed_read_time_s=10,
        expert_read_time_s=0,
        expert_count=0,
        experts_per_token=0,
        read_time_s_per_sequence=1,
        compute_time_s_per_sequence=3,
    ) == pytest.approx(5)


def test_a_sequence_that_reads_longer_than_it_computes_is_never_compute_bound() -> None:
    assert (
        crossover_batch(
            fixed_read_time_s=10,
            expert_read_time_s=0,
            expert_count=0,
            experts_per_token=0,
            read_time_s_per_sequence=3,
            compute_time_s_per_sequence=3,
        )
        == inf
    )


def test_the_crossover_of_experts_satisfies_its_own_equation() -> None:
    # B * 1 = 1 + 40 * (1 - (1 - 1/8)^B) has its root where the right side, evaluated by hand, equals B.
    batch = crossover_batch(
        fixed_read_time_s=1,
        expert_read_time_s=40,
        expert_count=8,
        experts_per_token=1,
        read_time_s_per_sequence=0,
        compute_time_s_per_sequence=1,
    )
    assert batch == pytest.approx(1 + 40 * (1 - (7 / 8) ** batch))
    assert 40 < batch < 41


def crossover_of_llama_70b(context_tokens: int) -> float:
    """NVFP4 weights and arithmetic, FP8 KV, one GB200 GPU, at a mean context (output of 2, so input + 1)."""
    result = answer(
        "llama-3.3-70b-instruct",
        "gb200-nvl72",
        precision=PrecisionAsked(weights="nvfp4", kv_cache=Precision.FP8, compute=Precision.NVFP4),
        parallelism=Parallelism(),
        workload=WorkloadAsked(isl=Length(context_tokens - 1), osl=Length(2), concurrency=1),
    )
    assert result.crossover is not None
    assert result.crossover.balance_point_flop_per_byte == 1250
    assert result.crossover.weights_only_batch == 312.5
    return result.crossover.batch


def test_the_crossover_of_llama_70b_ends_at_some_hundreds_of_tokens_of_context() -> None:
    # Per token of context and sequence, 80 layers x 8 KV heads x (128 + 128) bytes are read, and
    # 2 FLOP x 80 layers x 64 heads x (128 + 128) are done at the BF16 rate.
    read_s = 80 * 8 * 256 / GB200_BANDWIDTH  # 20.48 ns
    attention_s = 2 * 80 * 64 * 256 / BF16_RATE  # 1.05 ns
    # Per sequence, 2 FLOP for each parameter of 80 layers' projections (q, k, v, o and the gated MLP) at the NVFP4
    # rate, and of the head at the BF16 rate.
    layer = 8192 * 8192 * 2 + 8192 * 1024 * 2 + 3 * 8192 * 28672
    compute_s = 2 * 80 * layer / NVFP4_RATE + 2 * 8192 * 128256 / BF16_RATE  # 14.5 us
    ends_at_tokens = compute_s / (read_s - attention_s)
    assert 700 < ends_at_tokens < 800
    assert crossover_of_llama_70b(int(ends_at_tokens) - 5) < inf
    assert crossover_of_llama_70b(int(ends_at_tokens) + 5) == inf


def test_batch_one_uses_a_third_of_a_percent_of_the_arithmetic() -> None:
    # 4 FLOP per byte against a balance point of 1,250: 0.32 %.
    assert pytest.approx(0.0032) == 4 / 1250
    result = answer(
        "llama-3.3-70b-instruct",
        "gb200-nvl72",
        precision=PrecisionAsked(weights="nvfp4", kv_cache=Precision.FP8, compute=Precision.NVFP4),
        workload=WorkloadAsked(isl=Length(1), osl=Length(2), concurrency=1),
    )
    crossover = result.crossover
    assert crossover is not None
    assert crossover.arithmetic_intensity_flop_per_byte / crossover.balance_point_flop_per_byte == 0.0032


@pytest.mark.parametrize(
    ("weights", "compute", "batch"),
    [
        ("nvfp4", Precision.NVFP4, 10e15 / 8e12 * 0.5 / 2),
        ("fp8", Precision.NVFP4, 10e15 / 8e12 * 1.0 / 2),
        ("fp8", Precision.FP8, 5e15 / 8e12 * 1.0 / 2),
        ("awq-int4", None, 2.5e15 / 8e12 * 0.5 / 2),
    ],
)
def test_weight_and_compute_precision_are_two_inputs(weights: str, compute: Precision | None, batch: float) -> None:
    result = answer("llama-3.3-70b-instruct", "gb200-nvl72", precision=PrecisionAsked(weights=weights, compute=compute))
    assert result.crossover is not None
    assert result.crossover.weights_only_batch == batch
    assert batch in (312.5, 625.0, 78.125)
