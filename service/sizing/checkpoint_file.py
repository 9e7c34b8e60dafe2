"""What the files of a checkpoint themselves say of its size: an index, the headers of its files, a GGUF header.

Their text is untrusted: sizes are checked against each other and against the config before they are believed. Only
sizes and names are read; nothing is executed, and no tensor is ever needed.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Any, Final

from service.errors import CheckpointInvalid
from service.sizing.language_model import Component, LanguageModel, StoredTensor, parameter_counts
from service.sizing.weight_schemes import stored_weights

MAXIMUM_TENSORS: Final = 1_000_000
MAXIMUM_NAME_LENGTH: Final = 500
MAXIMUM_BYTES: Final = 10**15
MAXIMUM_DIMENSIONS: Final = 8
# Between the file and what the config describes: buffers and alignment on one side, a wrong file on the other.
LARGEST_DEVIATION: Final = 0.1

# Bits of an element of each type that a safetensors header may name.
SAFETENSORS_BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

LAYER_NUMBER: Final = re.compile(r"(?:^|\.)(?:layers|h|block|blk)\.(\d{1,6})\.")
DRAFTING_NAME: Final = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers|mtp_block)(?:\.|_|$)")


class WeightBytesSource(StrEnum):
    """What the weights' bytes were taken from."""

    CONFIG = "config"  # the shapes in config.json
    SAFETENSORS_INDEX = "safetensors_index"
    SAFETENSORS_HEADER = "safetensors_header"
    GGUF_HEADER = "gguf_header"


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Bytes of a checkpoint's tensors, those of drafting layers apart; ``scheme`` is a GGUF file's mixture.

    ``element_count`` is there where the file's shapes are those of the model (GGUF), not of packed words.
    """

    source: WeightBytesSource
    tensor_count: int
    resident_bytes: int
    drafting_bytes: int = 0
    element_count: int | None = None
    scheme: str | None = None


def index_sizes(text: bytes, model: LanguageModel) -> FileSizes:
    """Of ``model.safetensors.index.json``, which says one total for all tensors and names them.

    The drafting layers' share is what the config makes of them, since the index has no size for a tensor.
    """
    document = _object(text, "the index")
    total = _section(document, "metadata").get("total_size")
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total <= MAXIMUM_BYTES:
        raise CheckpointInvalid("metadata.total_size must be a number of bytes", key="metadata.total_size")
    names = _section(document, "weight_map")
    _refuse_many(len(names))
    drafting = sum(1 for name in names if _is_drafting(name, model.layer_count))
    drafting_bytes = round(_drafting_bytes(model, names)) if drafting else 0
    return FileSizes(WeightBytesSource.SAFETENSORS_INDEX, len(names), total - drafting_bytes, drafting_bytes)


def header_sizes(texts: Sequence[bytes], model: LanguageModel) -> FileSizes:
    """Of the JSON headers of all the safetensors files of a checkpoint.

    In each, the tensors' places must follow one another from 0 on without gap or overlap, as the format demands.
    """
    sizes: dict[str, int] = {}
    for number, text in enumerate(texts):
        header = _object(text, f"header {number}")
        _refuse_many(len(header) + len(sizes))
        places = sorted((*_place(name, entry), name) for name, entry in header.items() if name != "__metadata__")
        end_before = 0
        for begin, end, name in places:
            if begin != end_before:
                raise CheckpointInvalid(
                    f"{_shown(name)} begins at byte {begin}, but the tensor before it ends at {end_before}",
                    key=f"{name}.data_offsets",
                )
            if name in sizes:
                raise CheckpointInvalid(f"{_shown(name)} is in two of the headers", key=name)
            sizes[name], end_before = end - begin, end
    if not sizes:
        raise CheckpointInvalid("the headers describe no tensor")
    drafting = sum(size for name, size in sizes.items() if _is_drafting(name, model.layer_count))
    return FileSizes(WeightBytesSource.SAFETENSORS_HEADER, len(sizes), sum(sizes.values()) - drafting, drafting)


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor begins and ends, if its shape has just so many bytes."""
    if not isinstance(entry, dict):
        raise CheckpointInvalid(f"{_shown(name)} must be an object", key=name)
    bits = SAFETENSORS_BITS.get(entry["dtype"]) if isinstance(entry.get("dtype"), str) else None
    if bits is None:
        known = ", ".join(SAFETENSORS_BITS)
        raise CheckpointInvalid(f"the dtype of {_shown(name)} is not one of {known}", key=f"{name}.dtype")
    shape = _counts(entry.get("shape"), name, "shape", MAXIMUM_DIMENSIONS)
    offsets = _counts(entry.get("data_offsets"), name, "data_offsets", 2)
    if len(offsets) != 2 or offsets[1] < offsets[0]:
        raise CheckpointInvalid(
            f"data_offsets of {_shown(name)} must be a begin and an end", key=f"{name}.data_offsets"
        )
    expected = -(-prod(shape) * bits // 8)
    if offsets[1] - offsets[0] != expected:
        raise CheckpointInvalid(
            f"{_shown(name)} has {offsets[1] - offsets[0]} bytes, and its shape needs {expected}",
            key=f"{name}.data_offsets",
        )
    return offsets[0], offsets[1]


def _counts(value: Any, name: str, field: str, longest: int) -> list[int]:
    if (
        not isinstance(value, list)
        or len(value) > longest
        or not all(
            isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAXIMUM_BYTES for each in value
        )
    ):
        raise CheckpointInvalid(
            f"{field} of {_shown(name)} must be up to {longest} numbers of 0 and more", key=f"{name}.{field}"
        )
    return value


def with_file_sizes(model: LanguageModel, sizes: FileSizes) -> LanguageModel:
    """The model with the bytes of its files, or ``CheckpointInvalid`` where they cannot be this model's.

    A GGUF file decides the scheme too. The bytes are spread over the tensors as the scheme has them.
    """
    if sizes.scheme is not None:
        checkpoint = tuple(StoredTensor(tensor, sizes.scheme) for tensor in model.tensors)
        model = replace(model, checkpoint=checkpoint, checkpoint_scheme=sizes.scheme)
    stored = stored_weights(replace(model, file_weight_bytes=None))
    elsewhere_bytes = 0
    if sizes.scheme is not None:  # a tower lies in a file of its own
        elsewhere_bytes = sum(e.size_bytes for e in stored.entries if e.component is Component.VISION)
    if sizes.element_count is not None:
        counts = parameter_counts(model.tensors)
        _refuse_deviation(sizes.element_count, sum(counts.values()) - counts[Component.VISION], "elements")
    _refuse_deviation(sizes.resident_bytes, stored.total_bytes - elsewhere_bytes, "bytes")
    return replace(
        model,
        file_weight_bytes=sizes.resident_bytes + elsewhere_bytes,
        weight_bytes_source=sizes.source.value,
    )


def _refuse_deviation(found: int, described: int, unit: str) -> None:
    if abs(found - described) > LARGEST_DEVIATION * described:
        raise CheckpointInvalid(
            f"the file's tensors have {found} {unit}, and the config describes a model of {described}: "
            "they are not of one checkpoint, or the config leaves out how it is quantised"
        )


def _is_drafting(name: str, layer_count: int) -> bool:
    """Whether a tensor is of a layer beyond the model's own, or named as drafting."""
    layer = LAYER_NUMBER.search(name)
    return bool(DRAFTING_NAME.search(name)) or (layer is not None and int(layer[1]) >= layer_count)


def _drafting_bytes(model: LanguageModel, names: Iterable[str]) -> float:
    """By the config: the modules in the width of the other weights, and 16-bit copies of embedding and head."""
    if model.mtp is None:
        return 0.0
    stored = stored_weights(model)
    mean_bytes = stored.total_bytes / sum(parameter_counts(model.tensors).values())
    copies = sum(
        1
        for name in names
        if _is_drafting(name, model.layer_count) and name.endswith(("embed_tokens.weight", "head.weight"))
    )
    return model.mtp.parameter_count * mean_bytes + copies * 2 * model.vocabulary_size * model.hidden_size


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CheckpointInvalid(f"{what} is not JSON: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise CheckpointInvalid(f"{what} must be a JSON object")
    return document


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise CheckpointInvalid("an object says one name twice")
    return document


def _section(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name)
    if not isinstance(section, dict):
        raise CheckpointInvalid(f"{name} must be an object", key=name)
    return section


def _refuse_many(count: int) -> None:
    if count > MAXIMUM_TENSORS:
        raise CheckpointInvalid(f"more than {MAXIMUM_TENSORS} tensors")


def _shown(name: str) -> str:
    return repr(name[:MAXIMUM_NAME_LENGTH])
