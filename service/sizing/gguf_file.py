"""Reads the header of a GGUF file: what each tensor is and in which block format it lies.

Format: "GGUF", https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The bytes are untrusted: every length is
checked against what is left before anything is made of it.
"""

import struct
from dataclasses import dataclass
from math import prod
from typing import Final

from service.errors import CheckpointInvalid
from service.sizing.checkpoint_file import (
    LAYER_NUMBER,
    MAXIMUM_DIMENSIONS,
    MAXIMUM_NAME_LENGTH,
    MAXIMUM_TENSORS,
    FileSizes,
    WeightBytesSource,
)
from service.sizing.language_model import LanguageModel

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAXIMUM_ENTRIES: Final = 100_000
STRING, ARRAY = 8, 9
VALUE_BYTES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

# Elements and bytes of a block, by the number of its type. Source: ggml, ``type_traits`` in ggml.c.
BLOCKS: Final[dict[int, tuple[int, int]]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
}

# ``general.file_type`` of the mixtures that are modelled. Source: llama.cpp, ``llama_ftype`` in llama.h.
FILE_TYPES: Final = {
    2: "gguf-q4_0",
    7: "gguf-q8_0",
    14: "gguf-q4_k_s",
    15: "gguf-q4_k_m",
    16: "gguf-q5_k_s",
    17: "gguf-q5_k_m",
    18: "gguf-q6_k",
}


@dataclass(slots=True)
class _Cursor:
    data: bytes
    position: int = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.position:
            raise CheckpointInvalid(
                "the GGUF header ends before it is complete: give the file's first bytes, up to them"
            )
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def text(self, *, longest: int) -> str:
        length = self.number(8)
        if length > longest:
            raise CheckpointInvalid(f"the GGUF header holds a name of {length} bytes")
        return self.take(length).decode("utf-8", "replace")


def gguf_sizes(data: bytes, model: LanguageModel) -> FileSizes:
    """Of the first bytes of a GGUF file, up to the end of its list of tensors.

    A mixture that is not modelled is refused by its number. Tensors of a projector or a draft lie in files of
    their own, and blocks beyond the model's layers are drafting layers.
    """
    cursor = _Cursor(data)
    if cursor.take(4) != MAGIC:
        raise CheckpointInvalid("the data does not begin with GGUF")
    version = cursor.number(4)
    if version not in VERSIONS:
        raise CheckpointInvalid(f"GGUF version {version} is not read; known are {', '.join(map(str, VERSIONS))}")
    tensor_count, entry_count = cursor.number(8), cursor.number(8)
    if not 0 < tensor_count <= MAXIMUM_TENSORS or entry_count > MAXIMUM_ENTRIES:
        raise CheckpointInvalid(f"the GGUF header announces {tensor_count} tensors and {entry_count} entries")
    file_type = _file_type(cursor, entry_count)
    if file_type not in FILE_TYPES:
        known = ", ".join(f"{number} ({slug.removeprefix('gguf-')})" for number, slug in FILE_TYPES.items())
        raise CheckpointInvalid(f"general.file_type is {file_type}; known are {known}", key="general.file_type")
    resident = drafting = elements = 0
    for _ in range(tensor_count):
        name, element_count, size_bytes = _tensor(cursor)
        layer = LAYER_NUMBER.search(name)
        if layer is not None and int(layer[1]) >= model.layer_count:
            drafting += size_bytes
        else:
            resident += size_bytes
            elements += element_count
    return FileSizes(WeightBytesSource.GGUF_HEADER, tensor_count, resident, drafting, elements, FILE_TYPES[file_type])


def _file_type(cursor: _Cursor, entry_count: int) -> int | None:
    found: int | None = None
    for _ in range(entry_count):
        key, kind = cursor.text(longest=65_535), cursor.number(4)
        if key == "general.file_type" and kind in VALUE_BYTES:
            found = cursor.number(VALUE_BYTES[kind])
        else:
            _skip(cursor, kind)
    return found


def _skip(cursor: _Cursor, kind: int) -> None:
    """Past a value; texts in arrays are skipped one by one, and an array in an array is not in any file."""
    if kind == ARRAY:
        inner, count = cursor.number(4), cursor.number(8)
        if inner in VALUE_BYTES:
            cursor.take(count * VALUE_BYTES[inner])
        elif inner == STRING and count <= len(cursor.data):
            for _ in range(count):
                cursor.take(cursor.number(8))
        else:
            raise CheckpointInvalid(f"the GGUF header holds an array of type {inner}")
    elif kind == STRING:
        cursor.take(cursor.number(8))
    elif kind in VALUE_BYTES:
        cursor.take(VALUE_BYTES[kind])
    else:
        raise CheckpointInvalid(f"the GGUF header holds a value of type {kind}")


def _tensor(cursor: _Cursor) -> tuple[str, int, int]:
    """Its name, elements and bytes."""
    name = cursor.text(longest=MAXIMUM_NAME_LENGTH)
    dimension_count = cursor.number(4)
    if dimension_count > MAXIMUM_DIMENSIONS:
        raise CheckpointInvalid(f"{name!r} has {dimension_count} dimensions", key=name)
    shape = struct.unpack(f"<{dimension_count}Q", cursor.take(8 * dimension_count))
    kind, _offset = cursor.number(4), cursor.number(8)
    if kind not in BLOCKS:
        raise CheckpointInvalid(f"{name!r} is of type {kind}, which is not known", key=name)
    block_elements, block_bytes = BLOCKS[kind]
    element_count = prod(shape)
    if element_count > 10**15 or (shape and shape[0] % block_elements):
        raise CheckpointInvalid(f"{name!r} has a shape that its type cannot have", key=name)
    return name, element_count, element_count // block_elements * block_bytes
