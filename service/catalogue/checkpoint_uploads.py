"""The files of a checkpoint as a caller sends them: base64, compressed or not, unpacked within bounds."""

import binascii
import zlib
from base64 import b64decode
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from service.errors import CheckpointInvalid
from service.sizing.checkpoint_file import FileSizes, header_sizes, index_sizes
from service.sizing.gguf_file import gguf_sizes
from service.sizing.language_model import LanguageModel

MAXIMUM_UNPACKED_BYTES: Final = 24 * 1024 * 1024  # the largest published index has 18
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31  # zlib's number for a gzip stream
LENGTH_BYTES: Final = 8  # of a safetensors file, before its header


class CheckpointKind(StrEnum):
    """What is sent of a checkpoint's files."""

    SAFETENSORS_INDEX = "safetensors_index"
    SAFETENSORS_HEADER = "safetensors_header"
    GGUF_HEADER = "gguf_header"


def checkpoint_sizes(kind: CheckpointKind, contents: Sequence[str], model: LanguageModel) -> FileSizes:
    """The sizes that the contents say, or ``CheckpointInvalid``."""
    unpacked: list[bytes] = []
    for number, content in enumerate(contents):
        room = MAXIMUM_UNPACKED_BYTES - sum(len(each) for each in unpacked)
        unpacked.append(_unpacked(content, number, room))
    if kind is CheckpointKind.SAFETENSORS_HEADER:
        return header_sizes([_header_text(each, number) for number, each in enumerate(unpacked)], model)
    if len(unpacked) != 1:
        raise CheckpointInvalid(f"a {kind.value} is one content, and {len(unpacked)} were sent", key="content_base64")
    read = index_sizes if kind is CheckpointKind.SAFETENSORS_INDEX else gguf_sizes
    return read(unpacked[0], model)


def _unpacked(content: str, number: int, room: int) -> bytes:
    try:
        data = b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise CheckpointInvalid(f"content {number} is not base64", key="content_base64") from None
    if data.startswith(GZIP_MAGIC):
        stream = zlib.decompressobj(GZIP_WINDOW)
        try:
            data = stream.decompress(data, max(1, room + 1))
        except zlib.error as error:
            raise CheckpointInvalid(f"content {number} is not gzip: {error}", key="content_base64") from None
    if len(data) > room:
        raise CheckpointInvalid(
            f"the contents have more than {MAXIMUM_UNPACKED_BYTES} bytes unpacked", key="content_base64"
        )
    return data


def _header_text(data: bytes, number: int) -> bytes:
    """The JSON alone, or the first bytes of the file, which begin with the header's length."""
    if data[:1] == b"{":
        return data
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > len(data) - LENGTH_BYTES:
        raise CheckpointInvalid(
            f"content {number} announces a header of {length} bytes and has {max(0, len(data) - LENGTH_BYTES)}",
            key="content_base64",
        )
    return data[LENGTH_BYTES : LENGTH_BYTES + length]
