"""Numeric formats and density; the schemes in which checkpoints store weights are in ``weight_schemes.py``."""

from enum import StrEnum


class Precision(StrEnum):
    """A numeric format, of a compute rate or of a stored element."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    INT8 = "int8"
    FP6 = "fp6"
    MXFP6 = "mxfp6"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT4 = "int4"

    @property
    def element_bytes(self) -> float:
        """Width of one element without its share of block scales, as in the textbook figures.

        >>> Precision.NVFP4.element_bytes
        0.5
        """
        return ELEMENT_BITS[self] / 8


ELEMENT_BITS = {
    Precision.FP64: 64,
    Precision.FP32: 32,
    Precision.TF32: 32,
    Precision.BF16: 16,
    Precision.FP16: 16,
    Precision.FP8: 8,
    Precision.MXFP8: 8,
    Precision.INT8: 8,
    Precision.FP6: 6,
    Precision.MXFP6: 6,
    Precision.NVFP4: 4,
    Precision.MXFP4: 4,
    Precision.INT4: 4,
}


class Density(StrEnum):
    """Whether a rate counts the multiplications by structured zeros that the hardware skips.

    The pattern is the vendor's own (2:4 on NVIDIA and AMD, 4:1 on AWS), hence no ratio in the name.
    """

    DENSE = "dense"
    SPARSE = "sparse"
