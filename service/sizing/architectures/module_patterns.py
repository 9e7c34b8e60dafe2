"""Applies a checkpoint's lists of modules left unquantised, which may hold many thousands of entries.

An entry is a module's name or a part of one between dots, a glob, or ``re:`` and a regular expression.
The files are untrusted, so expressions are not handed to a backtracking engine: the small language that
published lists use is translated into one whose matching time is linear.
"""

import re
from collections.abc import Iterable
from fnmatch import translate
from itertools import product
from typing import Final

from service.errors import ConfigInvalid

MAXIMUM_PATTERNS: Final = 2_000
MAXIMUM_PATTERN_LENGTH: Final = 400
MAXIMUM_ALTERNATIVES: Final = 64
NUMBERED_EXPERT: Final = re.compile(r"experts\\?\.\d")

# One piece of an expression: a group of alternatives, an escape, a class of characters, anything else.
_PIECES: Final = re.compile(
    r"""
      \((?:\?:)? (?P<group> [\w\-./|]* (?: \\\. [\w\-./|]* )* ) \) (?P<optional>\??)
    | \\(?P<escaped>[.\-_dw]) (?P<escaped_repeat>[*+]?)
    | \[(?P<listed>[\w\-]+)\] (?P<listed_repeat>[*+]?)
    | (?P<dot>\.) (?P<dot_repeat>[*+]?\??)
    | (?P<plain>[\w\-/:])
    | (?P<start>\^)
    | (?P<end>\$)
    """,
    re.VERBOSE,
)


class ModulePatterns:
    """The entries of one list, and which modules they name."""

    def __init__(self, entries: Iterable[str], *, key: str) -> None:
        self._names: set[str] = set()
        expressions: list[str] = []
        names_experts = False
        for entry in entries:
            names_experts = names_experts or bool(NUMBERED_EXPERT.search(entry))
            if entry.startswith("re:"):
                expressions.extend(_linear_expressions(entry[3:], key))
            elif any(mark in entry for mark in "*?["):
                _refuse_length(entry, key)
                expressions += [translate(entry), translate(f"{entry}.*")]
            else:
                self._names.add(entry)
        unique = tuple(dict.fromkeys(expressions))
        if len(unique) > MAXIMUM_PATTERNS:
            raise ConfigInvalid(f"{key} holds more than {MAXIMUM_PATTERNS} patterns", key=key)
        self._expressions = tuple(_compiled(expression, key) for expression in unique)
        self.distinguishes_experts = names_experts

    @property
    def expression_count(self) -> int:
        """How many expressions a module is held against, besides the names."""
        return len(self._expressions)

    def __bool__(self) -> bool:
        return bool(self._names or self._expressions)

    def names(self, module: str) -> bool:
        """Whether an entry is the module's name, one of its parts or a pattern of it."""
        if module in self._names:
            return True
        if self._names:
            parts = module.split(".")
            for start in range(len(parts)):
                for end in range(start + 1, len(parts) + 1):
                    if ".".join(parts[start:end]) in self._names:
                        return True
        return any(expression.match(module) for expression in self._expressions)


def _compiled(expression: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ConfigInvalid(f"{key} holds an expression that is none: {error}", key=key) from None


def _refuse_length(entry: str, key: str) -> None:
    if len(entry) > MAXIMUM_PATTERN_LENGTH:
        raise ConfigInvalid(f"{key} holds a pattern longer than {MAXIMUM_PATTERN_LENGTH} characters", key=key)


def _linear_expressions(expression: str, key: str) -> list[str]:
    """The alternatives of an expression, each a run of pieces whose repetitions never give back.

    ``.*`` before a piece of fixed text becomes an atomic search for that text, as in a glob; a repeated
    class becomes possessive. Alternations are multiplied out.

    >>> _linear_expressions(r".*mlp\\.(gate|router)$", "ignore")
    ['(?>.*?mlp\\\\.gate\\\\Z)', '(?>.*?mlp\\\\.router\\\\Z)']
    """
    _refuse_length(expression, key)
    choices: list[tuple[str, ...]] = []
    position = 0
    while position < len(expression):
        piece = _PIECES.match(expression, position)
        if piece is None:
            raise ConfigInvalid(
                f"{key} holds the expression {expression[:80]!r}, of which {expression[position : position + 10]!r} "
                "is not read: known are names, ., .*, \\d+, classes, alternatives in one pair of brackets, ^ and $",
                key=key,
            )
        choices.append(_translated(piece))
        position = piece.end()
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > MAXIMUM_ALTERNATIVES:
            raise ConfigInvalid(f"{key} holds an expression of more than {MAXIMUM_ALTERNATIVES} alternatives", key=key)
    return [_atomic(pieces) for pieces in product(*choices)]


ANYTHING: Final = "\0"  # stands for .* until it is known what follows


def _translated(piece: re.Match[str]) -> tuple[str, ...]:
    """The piece's alternatives, usually one."""
    found = piece.groupdict()
    if found["group"] is not None:
        alternatives = tuple(re.escape(each.replace("\\.", ".")) for each in found["group"].split("|"))
        return (*alternatives, "") if found["optional"] else alternatives
    if found["dot"]:
        return ({"": ".", "*": ANYTHING, "+": "." + ANYTHING}[found["dot_repeat"].rstrip("?")],)
    if found["start"] or found["end"]:
        return ("",) if found["start"] else (r"\Z",)
    repeat = found["escaped_repeat"] or found["listed_repeat"]
    one = f"[{found['listed']}]" if found["listed"] else re.escape(found["plain"] or "")
    if found["escaped"]:
        one = f"\\{found['escaped']}" if found["escaped"] in "dw" else re.escape(found["escaped"])
    return (f"{one}{repeat}+" if repeat else one,)


def _atomic(pieces: Iterable[str]) -> str:
    first, *rest = "".join(pieces).split(ANYTHING)
    return first + "".join(f"(?>.*?{text})" for text in rest if text not in ("", r"\Z"))
