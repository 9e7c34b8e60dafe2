"""A file's bytes as strict UTF-8, whatever the shell that redirected them wrote.

PowerShell redirects as UTF-16 with a byte order mark; Windows editors put one before UTF-8. Both are read. Bytes that
are not text in the announced encoding are refused: guessing an encoding changes names silently.
"""

import codecs
import csv
import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from service.imports.report import Refused

CHUNK_BYTES = 1 << 18
LONGEST_LINE = 4 << 20
LONGEST_CELL = 1 << 20
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def encoding_of(head: bytes) -> str:
    """By the byte order mark; without one, by where the zero bytes of ASCII text in UTF-16 stand.

    >>> encoding_of("{}".encode("utf-16")), encoding_of(b"{}"), encoding_of("{}".encode("utf-16-be"))
    ('utf-16', 'utf-8', 'utf-16-be')
    """
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) >= 2 and head[0] == 0 != head[1]:
        return "utf-16-be"
    if len(head) >= 2 and head[1] == 0 != head[0]:
        return "utf-16-le"
    return "utf-8"


def decoded_head(head: bytes) -> str:
    """The beginning of a file as text; a character cut in two at its end is left out."""
    return codecs.getincrementaldecoder(encoding_of(head))(errors="replace").decode(head)


def text_chunks(stream: BinaryIO) -> Iterator[str]:
    """The file's text in pieces of bounded size."""
    chunk = stream.read(CHUNK_BYTES)
    encoding = encoding_of(chunk)
    decoder = codecs.getincrementaldecoder(encoding)()
    position = 0
    while True:
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            where = f"near byte {position + error.start}"
            raise Refused(f"the text is not {encoding.removesuffix('-sig')}; save it as UTF-8", where=where) from None
        if text:
            yield text
        if not chunk:
            return
        position += len(chunk)
        chunk = stream.read(CHUNK_BYTES)


def lines(stream: BinaryIO) -> Iterator[str]:
    """The file's lines without their ends. A line beyond the bound is refused: no tool writes such a one."""
    rest = ""
    number = 1
    for text in text_chunks(stream):
        whole = rest + text
        parts = whole.split("\n")
        rest = parts.pop()
        for part in parts:
            yield part.removesuffix("\r")
        number += len(parts)
        if len(rest) > LONGEST_LINE:
            raise Refused(f"a line is longer than {LONGEST_LINE} characters", where=f"line {number}")
    if rest:
        yield rest.removesuffix("\r")


def csv_rows(stream: BinaryIO, *, skip_spaces: bool = False) -> Iterator[list[str]]:
    """The rows of a CSV file, blank lines as empty rows."""
    csv.field_size_limit(LONGEST_CELL)
    rows = csv.reader(lines(stream), skipinitialspace=skip_spaces)
    try:
        yield from rows
    except csv.Error as error:
        raise Refused(f"this is not CSV ({error})", where=f"line {rows.line_num}") from None


def content_digest(stream: BinaryIO) -> str:
    """SHA-256 of the bytes, by which the same file sent twice is known; leaves the stream at its beginning."""
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    stream.seek(0)
    return digest.hexdigest()


class Utf8Reader:
    """The text of a stream as UTF-8 bytes, read in pieces, for parsers that take bytes."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self._pending = b""

    def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        while not self._pending:
            piece = next(self._chunks, None)
            if piece is None:
                return b""
            self._pending = piece.encode("utf-8", "surrogatepass")
        taken = self._pending if size < 0 else self._pending[:size]
        self._pending = self._pending[len(taken) :]
        return taken
