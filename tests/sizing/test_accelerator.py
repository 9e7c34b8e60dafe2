"""Worked cases: what one GPU of a published system can do, and the balance points that follow.

GB200 NVL72, product page as quoted in the catalogue: 72 GPUs, 13.4 TB HBM3E, 576 TB/s; NVFP4 1,440 | 720 PFLOPS is
sparse | dense; FP8 720 and BF16 360 PFLOPS are sparse, and by the footnote dense is one half of the figure shown.
"""

from typing import Any

import pytest

from service.catalogue.accelerator_records import load_accelerator_records
from service.errors import RateNotPublished
from service.sizing.accelerator import Accelerator
from service.sizing.precision import Density, Precision
from service.sizing.roofline import balance_point_flop_per_byte, weights_only_crossover_batch

ACCELERATORS = {slug: record.to_accelerator() for slug, record in load_accelerator_records().items()}


def balance_point(accelerator: Accelerator, precision: Precision) -> float:
    assert accelerator.memory_bandwidth_bytes_per_s is not None
    return balance_point_flop_per_byte(
        peak_flop_per_s=accelerator.peak_flop_per_s(precision, Density.DENSE),
        memory_bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
    )


def crossover(slug: str, *, weights: Precision, compute: Precision) -> float:
    return weights_only_crossover_batch(
        balance_point_flop_per_byte=balance_point(ACCELERATORS[slug], compute),
        bytes_per_parameter=weights.element_bytes,
    )


def test_gb200_per_gpu_figures_follow_from_the_rack() -> None:
    gb200 = ACCELERATORS["gb200-nvl72"]
    assert gb200.memory_capacity_bytes == pytest.approx(13.4e12 / 72)
    assert gb200.memory_capacity_bytes == pytest.approx(186.1e9, abs=0.05e9)
    assert gb200.memory_bandwidth_bytes_per_s == 576e12 / 72 == 8e12
    assert gb200.peak_flop_per_s(Precision.NVFP4, Density.DENSE) == 720e15 / 72 == 10e15
    assert gb200.peak_flop_per_s(Precision.FP8, Density.DENSE) == 720e15 / 2 / 72 == 5e15
    assert gb200.peak_flop_per_s(Precision.BF16, Density.DENSE) == 360e15 / 2 / 72 == 2.5e15
    assert gb200.peak_flop_per_s(Precision.NVFP4, Density.SPARSE) == 1440e15 / 72 == 20e15


def test_gb200_usable_memory_is_what_its_driver_reports() -> None:
    # 189,471 MiB; the page's 186 "GB" behave like GiB, so it exceeds the decimal reading.
    assert ACCELERATORS["gb200-nvl72"].usable_memory_bytes == 189_471 * 2**20
    assert pytest.approx(198.7e9, abs=0.05e9) == 189_471 * 2**20


def test_gb200_balance_point_at_nvfp4_is_1250() -> None:
    assert balance_point(ACCELERATORS["gb200-nvl72"], Precision.NVFP4) == 10e15 / 8e12 == 1250


@pytest.mark.parametrize(
    ("weights", "compute", "batch"),
    [
        (Precision.NVFP4, Precision.NVFP4, 1250 * 0.5 / 2),  # 312.5
        (Precision.FP8, Precision.NVFP4, 1250 * 1 / 2),  # 625: FP8 bytes against the FP4 rate
        (Precision.FP8, Precision.FP8, 625 * 1 / 2),  # 312.5: at its own rate, 5e15 / 8e12 = 625
        (Precision.NVFP4, Precision.BF16, 312.5 * 0.5 / 2),  # 78.125: 2.5e15 / 8e12 = 312.5
        (Precision.BF16, Precision.BF16, 312.5 * 2 / 2),  # 312.5
    ],
)
def test_gb200_weights_only_crossovers(weights: Any, compute: Any, batch: Any) -> None:
    assert crossover("gb200-nvl72", weights=weights, compute=compute) == batch


def test_a_gb200_decode_step_of_one_sequence_uses_a_third_of_a_percent_of_the_arithmetic() -> None:
    # One 4-bit parameter is half a byte and 2 FLOP: 4 FLOP/byte of the 1,250 that the arithmetic could do.
    assert 4 / balance_point(ACCELERATORS["gb200-nvl72"], Precision.NVFP4) == pytest.approx(0.0032)


def test_h100_sxm_balance_point_at_bf16_is_295() -> None:
    # 1,979 TFLOPS with sparsity, dense one half = 989.5; 3.35 TB/s.
    assert balance_point(ACCELERATORS["h100-sxm"], Precision.BF16) == pytest.approx(989.5 / 3.35)
    assert round(989.5 / 3.35) == 295


def test_a100_crossover_is_the_same_at_bf16_and_int8_and_a_quarter_for_int4_weights() -> None:
    # 2.039 TB/s, BF16 312 TFLOPS, INT8 624 TOPS, both dense.
    assert crossover("a100-80gb-sxm", weights=Precision.BF16, compute=Precision.BF16) == pytest.approx(153, abs=0.1)
    assert crossover("a100-80gb-sxm", weights=Precision.INT8, compute=Precision.INT8) == pytest.approx(153, abs=0.1)
    assert crossover("a100-80gb-sxm", weights=Precision.INT4, compute=Precision.BF16) == pytest.approx(153 / 4, abs=0.1)


def test_gb300_nvfp4_sparse_to_dense_is_four_thirds_and_not_two() -> None:
    gb300 = ACCELERATORS["gb300-nvl72"]
    dense, sparse = (gb300.peak_flop_per_s(Precision.NVFP4, density) for density in Density)
    assert dense == 1080e15 / 72 == 15e15
    assert sparse == 1440e15 / 72 == 20e15
    assert sparse / dense == pytest.approx(4 / 3)


def test_blackwell_ultra_int8_is_far_below_blackwell() -> None:
    # 24 POPS sparse a rack, one half dense, 72 GPUs: 167 TOPS against 5,000.
    assert ACCELERATORS["gb300-nvl72"].peak_flop_per_s(Precision.INT8, Density.DENSE) == pytest.approx(24e15 / 2 / 72)
    assert ACCELERATORS["gb200-nvl72"].peak_flop_per_s(Precision.INT8, Density.DENSE) == 720e15 / 2 / 72


def test_a_rate_that_is_not_published_is_refused_with_the_ones_that_are() -> None:
    with pytest.raises(RateNotPublished, match="bf16 dense"):
        ACCELERATORS["h100-sxm"].peak_flop_per_s(Precision.NVFP4, Density.DENSE)


def test_a_sparse_only_rate_does_not_answer_for_dense() -> None:
    with pytest.raises(RateNotPublished, match="fp16 sparse"):
        ACCELERATORS["cerebras-wse-3"].peak_flop_per_s(Precision.FP16, Density.DENSE)
