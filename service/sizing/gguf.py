"""Which block format each tensor of a GGUF file gets, as llama.cpp mixes them.

The mixture spends more bits where errors hurt most: the output matrix, and in about half of the layers
the value projections and the down projections.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from service.sizing.language_model import Component, LanguageModel, WeightTensor


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """``block_elements`` consecutive weights of a row are stored in ``block_bytes``, scales included."""

    name: str
    block_elements: int
    block_bytes: int

    def row_bytes(self, columns: int) -> int:
        return columns // self.block_elements * self.block_bytes


F16: Final = BlockFormat("f16", 1, 2)
F32: Final = BlockFormat("f32", 1, 4)
Q4_0: Final = BlockFormat("q4_0", 32, 18)
Q5_0: Final = BlockFormat("q5_0", 32, 22)
Q5_1: Final = BlockFormat("q5_1", 32, 24)
Q8_0: Final = BlockFormat("q8_0", 32, 34)
Q3_K: Final = BlockFormat("q3_k", 256, 110)
Q4_K: Final = BlockFormat("q4_k", 256, 144)
Q5_K: Final = BlockFormat("q5_k", 256, 176)
Q6_K: Final = BlockFormat("q6_k", 256, 210)

# A row that is no multiple of 256 takes the next wider format of 32.
_FALLBACKS = {Q3_K: Q4_0, Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0}


@dataclass(frozen=True, slots=True)
class Mixture:
    """``base`` for most matrices. ``better`` in the layers of ``uses_more_bits``: value and down projections.

    ``early`` is for value projections of the first four layers and down projections of the first eighth; ``fused``
    for queries, keys and values in one matrix; ``output`` for the head, or the embedding that serves as one.
    """

    base: BlockFormat
    output: BlockFormat = Q6_K
    better: BlockFormat | None = None
    early: BlockFormat | None = None
    fused: BlockFormat | None = None


MIXTURES: Final[Mapping[str, Mixture]] = {
    "gguf-q4_0": Mixture(Q4_0),
    "gguf-q4_k_s": Mixture(Q4_K, early=Q5_K),
    "gguf-q4_k_m": Mixture(Q4_K, better=Q6_K, fused=Q5_K),
    "gguf-q5_k_s": Mixture(Q5_K),
    "gguf-q5_k_m": Mixture(Q5_K, better=Q6_K, fused=Q6_K),
    "gguf-q6_k": Mixture(Q6_K),
    "gguf-q8_0": Mixture(Q8_0, output=Q8_0),
}
EARLY_VALUES = 4

# Beside eight experts the attention is so small that it is given more.
_EIGHT_EXPERT_FORMATS = {"v_proj": Q8_0, "kv_b_proj": Q8_0, "k_proj": Q8_0, "o_proj": Q5_K}
VALUE_NAMES = ("v_proj", "kv_b_proj")
FUSED_NAMES = ("qkv_proj", "query_key_value", "W_pack", "wqkv", "Wqkv", "c_attn")
DOWN_NAMES = ("down_proj", "w2", "dense_4h_to_h", "fc2", "fc_out", "output_linear")


def uses_more_bits(position: int, count: int) -> bool:
    """The first and the last eighth of the layers, and every third one between.

    >>> [position for position in range(16) if uses_more_bits(position, 16)]
    [0, 1, 4, 7, 10, 13, 14, 15]
    """
    eighth = count // 8
    return position < eighth or position >= 7 * count // 8 or (position - eighth) % 3 == 2


def gguf_tensor_bytes(
    tensor: WeightTensor, mixture: str, model: LanguageModel
) -> Iterator[tuple[WeightTensor, bool, int]]:
    """The tensor split by format: each part, whether it is quantised, and its bytes.

    Matrices, the embedding and the head are quantised; norms, biases, routers and convolutions keep 32
    bits; a vision tower goes to a file of its own in 16.

    Assumes: llama.cpp's default mixture without an importance matrix.
    Source: llama.cpp, ``llama_tensor_get_type`` in src/llama-quant.cpp. Checked: Llama-3.1-8B Q4_K_M is
    4,912,898,048 bytes of tensors and published as a file of 4,920,739,232 with its header.
    """
    is_matrix = tensor.quantisable or tensor.component in (Component.EMBEDDING, Component.LM_HEAD)
    if tensor.component is Component.VISION:
        yield tensor, False, F16.block_bytes * tensor.element_count
        return
    if not is_matrix or len(tensor.shape) < 2:
        yield tensor, False, F32.block_bytes * tensor.element_count
        return
    by_format: dict[BlockFormat, list[int]] = {}
    for layer in tensor.layers or (-1,):
        by_format.setdefault(_fitted(_block_format(tensor, layer, mixture, model), tensor), []).append(layer)
    *batches, columns = tensor.shape
    for block_format, layers in by_format.items():
        part = replace(tensor, layers=tuple(layers)) if tensor.layers else tensor
        yield part, True, prod(batches) * block_format.row_bytes(columns) * tensor.copies * len(layers)


def _fitted(block_format: BlockFormat, tensor: WeightTensor) -> BlockFormat:
    columns = tensor.shape[-1]
    if columns % block_format.block_elements:
        block_format = _FALLBACKS.get(block_format, F16)
    return F16 if columns % block_format.block_elements else block_format


def _block_format(tensor: WeightTensor, layer: int, mixture: str, model: LanguageModel) -> BlockFormat:
    formats = MIXTURES[mixture]
    if tensor.component is Component.LM_HEAD or (tensor.component is Component.EMBEDDING and model.tied_embedding):
        return formats.output if tensor.shape[-1] % formats.output.block_elements == 0 else Q8_0
    role = tensor.module.rsplit(".", 1)[-1]
    if model.expert_count == 8 and formats.base is Q4_K and role in _EIGHT_EXPERT_FORMATS:
        return _EIGHT_EXPERT_FORMATS[role]
    if role in VALUE_NAMES:
        return _value_format(formats, layer, model)
    if role in DOWN_NAMES:
        return _down_format(formats, layer, model)
    return (formats.fused if role in FUSED_NAMES else None) or formats.base


def _down_format(formats: Mixture, layer: int, model: LanguageModel) -> BlockFormat:
    if formats.better and uses_more_bits(layer, model.layer_count):
        return formats.better
    return formats.early if formats.early and layer < model.layer_count // 8 else formats.base


def _value_format(formats: Mixture, layer: int, model: LanguageModel) -> BlockFormat:
    """Layers are counted among those that attend. A 70B of grouped queries has values of five bits at least."""
    attending = sorted({each for group in model.layer_groups if group.kv_head_count for each in group.layers})
    position = attending.index(layer) if layer in attending else layer
    if formats.better and uses_more_bits(position, len(attending)):
        return formats.better
    if formats.early and position < EARLY_VALUES:
        return formats.early
    eight_queries_per_value = model.attention_head_count == 8 * model.kv_head_count
    if formats.base is Q4_K and model.layer_count == 80 and eight_queries_per_value:
        return Q5_K
    return formats.base
