"""The files of a zip, each unpacked alone into memory that is bounded; nothing is written where a name says.

Bounds are on what comes out, counted while it comes out: an archive's own figures may lie.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, cast
from zlib import error as ZlibError  # noqa: N812 - a class, though its name is lower case

from service.imports.report import Refused
from service.imports.text_stream import CHUNK_BYTES

MOST_MEMBERS = 1000
MOST_BYTES = 1 << 30
HIGHEST_RATIO = 200
RATIO_FROM_BYTES = 1 << 20
IN_MEMORY_BYTES = 8 << 20
CLUTTER = ("__macosx/", ".ds_store")


@dataclass(slots=True)
class Member:
    """A file of the archive; ``refusal`` says why it could not be unpacked."""

    name: str
    stream: BinaryIO | None
    refusal: str | None = None


def plain_name(name: str) -> str:
    r"""The name as a label that leads nowhere.

    >>> plain_name("../../etc/passwd"), plain_name("C:\\runs\\a.json"), plain_name("/a/./b.json")
    ('etc/passwd', 'runs/a.json', 'a/b.json')
    """
    parts = name.replace("\\", "/").split("/")
    kept = [part for part in parts if part not in ("", ".", "..") and not part.endswith(":")]
    printable = "".join(each if each.isprintable() else "?" for each in "/".join(kept))
    return printable[:300] or "unnamed"


def members(stream: BinaryIO) -> Iterator[Member]:
    """Each file with its content in a temporary stream, which the caller closes."""
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise Refused("the archive is damaged or cut off") from None
    with archive:
        entries = [each for each in archive.infolist() if not each.is_dir()]
        entries = [each for each in entries if not each.filename.lower().startswith(CLUTTER)]
        if len(entries) > MOST_MEMBERS:
            raise Refused(f"the archive has {len(entries)} files; at most {MOST_MEMBERS} are read")
        left = MOST_BYTES
        for entry in entries:
            name = plain_name(entry.filename)
            unpacked = cast(BinaryIO, SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))  # noqa: SIM115 - handed out
            try:
                left -= _unpack(archive, entry, unpacked, left)
            except Refused as refusal:
                unpacked.close()
                yield Member(name, None, str(refusal))
            else:
                unpacked.seek(0)
                yield Member(name, unpacked)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, into: IO[bytes], most: int) -> int:
    if entry.flag_bits & 1:
        raise Refused("the file is encrypted")
    size = 0
    try:
        with archive.open(entry) as source:
            while piece := source.read(CHUNK_BYTES):
                size += len(piece)
                if size > most:
                    raise Refused(f"the archive unpacks to more than {MOST_BYTES} bytes")
                if size > RATIO_FROM_BYTES and size > HIGHEST_RATIO * max(entry.compress_size, 1):
                    raise Refused(f"the file unpacks to more than {HIGHEST_RATIO} times its size")
                into.write(piece)
    except (zipfile.BadZipFile, ZlibError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"the file cannot be unpacked ({type(error).__name__})") from None
    return size
