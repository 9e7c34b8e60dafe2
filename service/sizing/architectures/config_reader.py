"""A typed reader over an untrusted config: every field is checked where it is read, and errors name it."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from service.errors import ConfigInvalid

# Far beyond any published model, and small enough that no product of them is a burden.
MAXIMUM_LAYERS: Final = 2_000
MAXIMUM_WIDTH: Final = 4_194_304
MAXIMUM_HEADS: Final = 65_536
MAXIMUM_EXPERTS: Final = 65_536
MAXIMUM_FACTOR: Final = 1_000
MAXIMUM_TOKENS: Final = 1_000_000_000_000

Chosen = TypeVar("Chosen")


class ConfigReader:
    """The fields of one JSON object. A field has alternative names where publishers disagree on it.

    ``null`` counts as left out, as it does for the libraries that read these files. A field without a
    ``default`` is required. Defaults are those that the family's reference implementation documents.
    """

    def __init__(self, fields: Mapping[str, Any], *, path: str = "") -> None:
        self._fields = fields
        self._path = path

    def key(self, name: str) -> str:
        """The field's full path, for error messages."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, *names: str) -> bool:
        return any(self._fields.get(name) is not None for name in names)

    def name_of(self, *names: str) -> str:
        """Under which of the names the file has the field; the first where it has none."""
        return self._found(names)[0]

    def states(self, name: str) -> bool:
        """Whether the file has the field, be it ``null``: some defaults hold only where it has not."""
        return name in self._fields

    def _found(self, names: tuple[str, ...]) -> tuple[str, Any]:
        return next(((name, self._fields[name]) for name in names if self.has(name)), (names[0], None))

    def _missing(self, name: str) -> ConfigInvalid:
        return ConfigInvalid(f"{self.key(name)} is missing, and nothing else in the config says it", key=self.key(name))

    def _wrong(self, name: str, expected: str, value: Any) -> ConfigInvalid:
        return ConfigInvalid(f"{self.key(name)} must be {expected}, not {_shown(value)}", key=self.key(name))

    def count(self, *names: str, default: int | None = None, minimum: int = 1, maximum: int = MAXIMUM_WIDTH) -> int:
        """An integer within bounds."""
        name, value = self._found(names)
        if value is None:
            if default is None:
                raise self._missing(name)
            return default
        return self._checked_count(name, value, minimum=minimum, maximum=maximum)

    def optional_count(self, *names: str, minimum: int = 1, maximum: int = MAXIMUM_WIDTH) -> int | None:
        """An integer within bounds, or ``None`` where the file does not say it."""
        name, value = self._found(names)
        return None if value is None else self._checked_count(name, value, minimum=minimum, maximum=maximum)

    def _checked_count(self, name: str, value: Any, *, minimum: int, maximum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number", value)
        if not minimum <= value <= maximum:
            raise self._wrong(name, f"between {minimum} and {maximum}", value)
        return value

    def scaled(self, name: str, width: int, *, default: float | None = None, divided_by: int = 1) -> int:
        """``width`` times the factor that the field holds, which need not be whole; rounded down at the end."""
        value = self._fields.get(name)
        if value is None:
            if default is None:
                raise self._missing(name)
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAXIMUM_FACTOR:
            raise self._wrong(name, f"a number above 0 and up to {MAXIMUM_FACTOR}", value)
        return max(1, int(width * value / divided_by))

    def flag(self, *names: str, default: bool) -> bool:
        name, value = self._found(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        name, value = self._found(names)
        if value is None:
            if default is None:
                raise self._missing(name)
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def choice(self, known: Mapping[str, Chosen], *names: str, default: str) -> Chosen:
        """What one of the known words stands for."""
        word = self.text(*names, default=default)
        if word not in known:
            raise self.refuse(self._found(names)[0], f"is {_shown(word)}; known are {', '.join(known)}")
        return known[word]

    def texts(self, *names: str) -> tuple[str, ...] | None:
        """A list of texts, or ``None`` where the file does not say it."""
        name, value = self._found(names)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, "a list of texts", value)
        return tuple(value)

    def counts(
        self, *names: str, minimum: int = 0, maximum: int = MAXIMUM_WIDTH, length: int | None = None
    ) -> tuple[int, ...] | None:
        """A list of integers within bounds, or ``None`` where the file does not say it."""
        name, value = self._found(names)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(name, "a list of whole numbers", value)
        if length is not None and len(value) != length:
            raise self.refuse(name, f"must hold {length} numbers, one for each layer, and holds {len(value)}")
        return tuple(self._checked_count(name, each, minimum=minimum, maximum=maximum) for each in value)

    def flags(self, name: str, *, length: int) -> tuple[bool, ...] | None:
        """A list of true and false, one for each layer, or ``None`` where the file does not say it."""
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or not all(isinstance(each, bool) for each in value):
            raise self._wrong(name, f"a list of {length} times true or false", value)
        return tuple(value)

    def section(self, *names: str) -> "ConfigReader":
        """An object inside this one, required."""
        name, value = self._found(names)
        if value is None:
            raise self._missing(name)
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object", value)
        return ConfigReader(value, path=self.key(name))

    def optional_section(self, *names: str) -> "ConfigReader | None":
        return self.section(*names) if self.has(*names) else None

    def holds_list(self, name: str) -> bool:
        return isinstance(self._fields.get(name), list)

    def holds_text(self, name: str) -> bool:
        return isinstance(self._fields.get(name), str)

    def length(self, name: str, *, default: int) -> int:
        """How many entries a list has."""
        value = self._fields.get(name)
        if value is None:
            return default
        if not isinstance(value, list) or len(value) > MAXIMUM_LAYERS:
            raise self._wrong(name, f"a list of up to {MAXIMUM_LAYERS} entries", value)
        return len(value)

    def sections(self, name: str, *, maximum: int = MAXIMUM_LAYERS) -> "tuple[ConfigReader, ...]":
        """A list of objects, required."""
        value = self._fields.get(name)
        if value is None:
            raise self._missing(name)
        if not isinstance(value, list) or len(value) > maximum or not all(isinstance(each, Mapping) for each in value):
            raise self._wrong(name, f"a list of up to {maximum} objects", value)
        return tuple(ConfigReader(each, path=f"{self.key(name)}.{i}") for i, each in enumerate(value))

    def taking(self, other: "ConfigReader", *names: str) -> "ConfigReader":
        """This object with the other's value of a field, where the other has one."""
        taken = {name: other._fields[name] for name in names if other.has(name)}
        return ConfigReader({**self._fields, **taken}, path=self._path)

    def overlaid(self, section: "ConfigReader") -> "ConfigReader":
        """This object with all the fields of a section in the place of its own."""
        return ConfigReader({**self._fields, **section._fields}, path=section._path)

    def signature(self) -> str:
        """A text that two objects share exactly if they say the same."""
        return json.dumps(self._fields, sort_keys=True, default=str)

    def names(self) -> tuple[str, ...]:
        """The names of the object's fields."""
        return tuple(self._fields)

    def layer_count(self, *names: str, default: int | None = None) -> int:
        return self.count(*(names or ("num_hidden_layers",)), default=default, maximum=MAXIMUM_LAYERS)

    def refuse(self, name: str, reason: str) -> ConfigInvalid:
        """The error to raise for a field that contradicts another or is not modelled."""
        return ConfigInvalid(f"{self.key(name)} {reason}", key=self.key(name))


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**18 else "a number of more than 18 digits"
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
