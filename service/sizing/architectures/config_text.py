"""Reads the text of a config.json: untrusted, sometimes not quite JSON, never executed."""

import json
from typing import Any

from service.errors import ConfigInvalid

MAXIMUM_CONFIG_BYTES = 4 * 1024 * 1024  # ignore lists run to hundreds of kilobytes, nothing real to megabytes
MAXIMUM_DEPTH = 64


def parse_config(text: bytes | str) -> dict[str, Any]:
    """The object in a config.json.

    A byte order mark and bare ``Infinity`` or ``NaN`` are accepted, since published files hold them. Raises
    ``ConfigInvalid`` for anything too large, too deep, not an object, or saying one thing twice.

    >>> parse_config('{"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]}')["time_step_limit"]
    [0.0, inf]
    """
    decoded = _decoded(text)
    _refuse_depth(decoded)
    try:
        document = json.loads(decoded, object_pairs_hook=_object_without_duplicates)
    except json.JSONDecodeError as error:
        raise ConfigInvalid(f"the config is not JSON: {error}") from None
    except ValueError:  # the interpreter's own limit on the digits of an integer
        raise ConfigInvalid("the config holds a number with too many digits") from None
    if not isinstance(document, dict):
        raise ConfigInvalid("the config must be a JSON object")
    return document


def _decoded(text: bytes | str) -> str:
    if len(text) > MAXIMUM_CONFIG_BYTES:
        raise ConfigInvalid(f"the config is larger than {MAXIMUM_CONFIG_BYTES} bytes")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigInvalid("the config is not UTF-8 text") from None


def _refuse_depth(text: str) -> None:
    """Counts brackets outside strings, before a recursive parser meets them."""
    depth, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            if depth > MAXIMUM_DEPTH:
                raise ConfigInvalid(f"the config is nested more than {MAXIMUM_DEPTH} deep")
        elif character in "]}":
            depth -= 1


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ConfigInvalid(f"the config says {twice[:100]!r} twice", key=twice[:100])
    return document
