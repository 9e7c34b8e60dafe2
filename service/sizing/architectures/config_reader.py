"""A typed reader over an untrusted config: every field is checked where it is read, and errors name it."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from service.errors import ConfigInvalid

# Far beyond any published model, and small enough that no product of them is a burden.
MAXIMUM_LAYERS: Final = 2_000
MAXIMUM_WIDTH: Final = 4_194_304
MAXIMUM_HEADS: Final = 65_536
MAXIMUM_EXPERTS: Final = 65_536
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
