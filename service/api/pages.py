"""Pages of a list: where the last one ended, sealed into an opaque cursor that fits the same question only."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from service.errors import Invalid

MAX_LIMIT = 200

T = TypeVar("T")
Key = tuple[str | float | int, ...]


class CursorInvalid(Invalid):
    code = "cursor_invalid"
    title = "The cursor does not continue this list"


class Page(BaseModel, Generic[T]):
    """Part of a list; `next_cursor` is null on the last part."""

    items: list[T]
    next_cursor: str | None = Field(description="give it as `cursor` for the next page; null when this is the last")


def page_of(
    items: Sequence[T],
    *,
    key: Callable[[T], Key],
    question: Mapping[str, Any],
    limit: int,
    cursor: str | None,
    descending: bool = False,
) -> tuple[list[T], str | None]:
    """The next ``limit`` items in the order of ``key`` (unique, such as (sort value, slug)), and the next cursor.

    ``question`` is every filter and the sort: a cursor of another question is refused, not misread. Keyset
    and not offset, so records that come or go between two pages neither repeat nor hide others.
    """
    ordered = sorted(items, key=key, reverse=descending)
    if cursor is not None:
        after = read_cursor(cursor, question)
        try:
            ordered = [item for item in ordered if (key(item) < after if descending else key(item) > after)]
        except TypeError:
            raise CursorInvalid("the cursor is not one of this list") from None
    page = ordered[:limit]
    more = len(ordered) > limit
    return page, write_cursor(key(page[-1]), question) if more else None


def write_cursor(key: Key, question: Mapping[str, Any]) -> str:
    sealed = json.dumps([_digest(question), list(key)], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def read_cursor(cursor: str, question: Mapping[str, Any]) -> Key:
    """
    >>> read_cursor(write_cursor((8e12, "gb200-nvl72"), {"vendor": "NVIDIA"}), {"vendor": "NVIDIA"})
    (8000000000000.0, 'gb200-nvl72')
    """
    try:
        digest, key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        position = tuple(key)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise CursorInvalid("the cursor is not one that this service has made") from None
    if digest != _digest(question) or not all(isinstance(part, str | int | float) for part in position):
        raise CursorInvalid("the cursor belongs to a list with other filters or another sort; begin that list anew")
    return position


def _digest(question: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(question, sort_keys=True, default=str).encode()).hexdigest()[:16]
