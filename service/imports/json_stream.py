"""JSON text read in bounded memory: long arrays are summarised as they pass, never held.

A detailed result file is a few hundred figures and, for every request, arrays of times, lengths and texts that may be
hundreds of megabytes. Of an array only the first elements are kept, with the count and the moments of its numbers.
Python tools also write the bare tokens ``Infinity`` and ``NaN``, which JSON does not have: they are read as text of
that name, so that the reader of a field decides.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, BinaryIO

import ijson  # type: ignore[import-untyped]  # the package ships no annotations

from service.imports.report import Refused
from service.imports.text_stream import Utf8Reader, text_chunks

KEPT_ELEMENTS = 64
KEPT_CHARACTERS = 4096
DEEPEST = 64
MOST_NODES = 500_000
LONGEST_TOKEN = 8 << 20
RESULT_ARRAYS = frozenset({"benchmarks"})

ESCAPE = re.compile(r"\\.", re.DOTALL)
STRING_OR_BARE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|NaN|-?Infinity', re.DOTALL)
STRING_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
UNFINISHED_WORD = re.compile(r"-?[A-Za-z]{0,8}\Z")
STRUCTURE = ' \n,:[]{}"'

Event = tuple[str, Any]


@dataclass(slots=True)
class Array:
    """The first elements of an array; the count of all, and the moments of its positive numbers.

    Benchmark clients write 0 for a request that failed, so zero does not enter the moments.
    """

    items: list[Any] = field(default_factory=list)
    count: int = 0
    positive_count: int = 0
    total: float = 0.0
    total_of_squares: float = 0.0
    whole: bool = False

    def add_number(self, value: float) -> None:
        self.count += 1
        if value > 0:
            self.positive_count += 1
            self.total += value
            self.total_of_squares += value * value
        if len(self.items) < KEPT_ELEMENTS:
            self.items.append(value)

    @property
    def is_full(self) -> bool:
        return not self.whole and len(self.items) >= KEPT_ELEMENTS

    @property
    def std(self) -> float | None:
        """The population's standard deviation of the positive numbers."""
        if not self.positive_count:
            return None
        mean = self.total / self.positive_count
        return sqrt(max(0.0, self.total_of_squares / self.positive_count - mean * mean))


class _Quoter:
    """Puts quotes around bare ``Infinity`` and ``NaN`` outside of strings, and bounds the longest token."""

    def __init__(self) -> None:
        self._in_string = False
        self._token_length = 0

    def quoted(self, chunks: Iterable[str]) -> Iterator[str]:
        carried = ""
        for chunk in chunks:
            text = carried + chunk
            keep = self._unfinished(text)
            carried = text[len(text) - keep :]
            yield self._piece(text[: len(text) - keep])
        yield self._piece(carried)

    @staticmethod
    def _unfinished(text: str) -> int:
        """Characters at the end whose meaning depends on the next piece: half an escape or half a word."""
        word = UNFINISHED_WORD.search(text, max(0, len(text) - 9))
        kept = len(word.group()) if word else 0
        before = text[: len(text) - kept]
        backslashes = len(before) - len(before.rstrip("\\"))
        return kept + backslashes % 2

    def _piece(self, text: str) -> str:
        started_in_string = self._in_string
        bare = ESCAPE.sub("", text) if "\\" in text else text
        if bare.count('"') % 2:
            self._in_string = not started_in_string
        self._bound(bare)
        if "NaN" not in text and "Infinity" not in text:
            return text
        start = 0
        if started_in_string:
            end = STRING_END.match(text)
            if end is None:
                return text
            start = end.end()
        return text[:start] + STRING_OR_BARE.sub(_with_quotes, text[start:])

    def _bound(self, bare: str) -> None:
        ends = '"' if self._in_string else STRUCTURE
        last = max(bare.rfind(end) for end in ends)
        self._token_length = self._token_length + len(bare) if last < 0 else len(bare) - last - 1
        if self._token_length > LONGEST_TOKEN:
            raise Refused(f"a text or number is longer than {LONGEST_TOKEN} characters")


def _with_quotes(match: re.Match[str]) -> str:
    word = match.group()
    return word if word.startswith('"') else f'"{word}"'


class Builder:
    """Makes bounded values of parser events; the elements of an array at the top are values of their own."""

    def __init__(self) -> None:
        self._stack: list[dict[str, Any] | Array] = []
        self._keys: list[str] = []
        self._skipped = 0
        self._nodes = 0
        self._depth = 0

    def values(self, events: Iterable[Event]) -> Iterator[Any]:
        for event, value in events:
            if self._skipped:
                self._skip(event)
            elif event == "map_key":
                self._keys[-1] = value
            elif event in ("start_map", "start_array"):
                self._open(event)
            elif event in ("end_map", "end_array"):
                yield from self._close()
            elif self._stack:
                self._put_scalar(value)
            else:
                yield value

    def _skip(self, event: str) -> None:
        if event in ("start_map", "start_array"):
            self._skipped += 1
            self._check_depth(self._skipped + self._depth)
        elif event in ("end_map", "end_array"):
            self._skipped -= 1

    def _open(self, event: str) -> None:
        self._depth += 1
        self._check_depth(self._depth)
        if event == "start_array" and self._depth == 1:
            return
        parent = self._stack[-1] if self._stack else None
        if isinstance(parent, Array) and parent.is_full:
            parent.count += 1
            self._depth -= 1
            self._skipped = 1
            return
        if event == "start_map":
            self._stack.append({})
        else:
            in_map = isinstance(parent, dict) and self._keys[-1] in RESULT_ARRAYS
            self._stack.append(Array(whole=in_map))
        self._keys.append("")

    def _close(self) -> Iterator[Any]:
        self._depth -= 1
        if not self._stack:
            return
        value = self._stack.pop()
        self._keys.pop()
        if self._stack:
            self._put(value)
        else:
            self._nodes = 0
            yield value

    def _put_scalar(self, value: Any) -> None:
        top = self._stack[-1]
        if isinstance(top, Array):
            if isinstance(value, int | float) and not isinstance(value, bool):
                top.add_number(value)
                return
            if top.is_full:
                top.count += 1
                return
        if isinstance(value, str) and len(value) > KEPT_CHARACTERS:
            value = value[:KEPT_CHARACTERS]
        self._put(value)

    def _put(self, value: Any) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise Refused(f"there are more than {MOST_NODES} values besides the per-request arrays")
        top = self._stack[-1]
        if isinstance(top, Array):
            top.count += 1
            top.items.append(value)
        else:
            top[self._keys[-1]] = value

    @staticmethod
    def _check_depth(depth: int) -> None:
        if depth > DEEPEST:
            raise Refused(f"the nesting is deeper than {DEEPEST}; no benchmark tool writes that")


def json_values(stream: BinaryIO) -> Iterator[Any]:
    """Each JSON value of the file, one after the other, as JSON lines have them; of an array at the top each element.

    Objects are dictionaries, arrays ``Array``.

    >>> import io
    >>> [value["rate"] for value in json_values(io.BytesIO(b'{"rate": Infinity} {"rate": 2.5}'))]
    ['Infinity', 2.5]
    """
    reader = Utf8Reader(_Quoter().quoted(text_chunks(stream)))
    events = ijson.basic_parse(reader, use_float=True, multiple_values=True)
    count = 0
    try:
        for value in Builder().values(events):
            count += 1
            yield value
    except ijson.IncompleteJSONError as error:
        message = str(error).partition("\n")[0].removeprefix("b'").strip()
        if "premature EOF" in message:
            place = f"after {count} whole values" if count else "before its first value is whole"
            raise Refused(f"the file ends {place}: it is empty or was cut off") from None
        raise Refused(f"this is not JSON ({message})", where=f"value {count + 1}") from None
    except ijson.JSONError as error:
        raise Refused(f"this is not JSON ({error})", where=f"value {count + 1}") from None
    except (ValueError, OverflowError):
        raise Refused("a number is too long to read", where=f"value {count + 1}") from None
