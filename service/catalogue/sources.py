"""Where figures were published: one registry of sources that the shipped catalogue files cite by id.

A stored record carries the sources it cites in full, so a revision stays readable when the registry changes.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.errors import CatalogueFileInvalid

REGISTRY = Path(__file__).parent / "data" / "sources.yaml"

T = TypeVar("T")
# JSON knows arrays only; strict would insist on tuples. Bounded, so that a hostile list is not judged item by item.
Many = Annotated[tuple[T, ...], Field(strict=False, max_length=1000)]
SourceId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")]
HttpUrl = Annotated[
    str, Field(pattern=r"^https?://[^\s]+$", max_length=2000, examples=["https://example.com/data-sheet.pdf"])
]


class SourceKind(StrEnum):
    """How near the publisher a source is."""

    VENDOR = "vendor"  # the vendor's own page or document, read directly
    TRANSCRIPTION = "transcription"  # somebody's copy or quotation of the vendor's text
    TOOL = "tool"  # constants of a public tool or data set
    MEASUREMENT = "measurement"  # what an engine or driver printed, in a public report
    PRESS = "press"
    SECONDARY = "secondary"


class Source(BaseModel):
    """A publication. ``url`` is the first of ``urls``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: SourceId
    title: str = Field(min_length=1, max_length=500)
    urls: Many[HttpUrl] = Field(min_length=1, max_length=20)
    kind: Annotated[SourceKind, Field(strict=False)] = SourceKind.SECONDARY
    read_on: str | None = Field(
        None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="date on which it was read", examples=["2026-12-01"]
    )
    note: str | None = Field(None, max_length=2000)

    @property
    def url(self) -> str:
        return self.urls[0]


class CatalogueYamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # either loader
    """Safe YAML that refuses a key written twice, and reads a date as the text it is."""


def _mapping_without_duplicates(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.value in seen or not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"the key {str(key_node.value)[:80]!r} is written twice or no word",
                key_node.start_mark,
            )
        seen.add(key_node.value)
    return {key.value: loader.construct_object(value, deep=True) for key, value in node.value}


def _as_text(loader: Any, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


CatalogueYamlLoader.add_constructor("tag:yaml.org,2002:map", _mapping_without_duplicates)
CatalogueYamlLoader.add_constructor("tag:yaml.org,2002:timestamp", _as_text)


def read_catalogue_yaml(path: Path) -> Any:
    """What the file says, or ``CatalogueFileInvalid``: not UTF-8, not YAML, a key twice, an alias."""
    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=CatalogueYamlLoader)):
            raise CatalogueFileInvalid(path.name, "(file)", "aliases (*name) are not used in catalogue files")
        return yaml.load(text, Loader=CatalogueYamlLoader)  # noqa: S506  a subclass of the safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CatalogueFileInvalid(path.name, "(file)", " ".join(str(error).split())[:500]) from error


def load_sources(path: Path = REGISTRY) -> Mapping[str, Source]:
    """The registry: a YAML mapping of source ids to what ``Source`` holds besides its id."""
    entries = read_catalogue_yaml(path)
    if not isinstance(entries, dict):
        raise CatalogueFileInvalid(path.name, "(file)", "must be a mapping of source ids")
    registry = {}
    for source_id, entry in entries.items():
        if not isinstance(entry, dict):
            raise CatalogueFileInvalid(path.name, str(source_id), "must be a mapping with title and urls")
        try:
            registry[source_id] = Source.model_validate({"id": source_id, **entry})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in (source_id, *first["loc"]))
            raise CatalogueFileInvalid(path.name, field, first["msg"]) from error
    return registry


def source_documents(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """As the API shows them."""
    return [
        {
            "id": source.id,
            "title": source.title,
            "url": source.url,
            "urls": list(source.urls),
            "kind": source.kind.value,
            "read_on": source.read_on,
            "note": source.note,
        }
        for source in sources
    ]
