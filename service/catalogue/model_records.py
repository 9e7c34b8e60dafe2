"""The form of a language model record: of a YAML file in ``data/models`` and of the body of a write.

A record holds the facts that decide a model's sizes, under the names that Hugging Face configs use: a shipped
record only those, an uploaded one whatever its config.json said. Nothing in it is ever executed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from service.catalogue.accelerator_figures import RecordPart, Text
from service.catalogue.accelerator_records import Slug
from service.catalogue.checkpoint_uploads import CheckpointKind, checkpoint_sizes
from service.catalogue.sources import Many, Source, load_sources, read_catalogue_yaml
from service.errors import CatalogueFileInvalid, ConfigInvalid, Invalid
from service.sizing.architectures import language_model_from_config
from service.sizing.architectures.config_text import MAXIMUM_DEPTH
from service.sizing.checkpoint_file import FileSizes, WeightBytesSource, with_file_sizes
from service.sizing.language_model import LanguageModel

SHIPPED_RECORDS = Path(__file__).parent / "data" / "models"

ModelName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$", examples=["meta-llama/Llama-3.3-70B-Instruct"])
]


class ConfigKind(StrEnum):
    """Where the facts come from."""

    READ = "read"  # out of a public copy of the publisher's config.json
    RECONSTRUCTED = "reconstructed"  # put together from published figures, and checked against published totals
    UPLOADED = "uploaded"  # by a user


class CheckpointSizes(RecordPart):
    """What the files of the checkpoint said of their sizes; drafting layers stand apart."""

    source: Annotated[WeightBytesSource, Field(strict=False)]
    tensor_count: int = Field(ge=1)
    resident_bytes: int = Field(ge=1)
    drafting_bytes: int = Field(default=0, ge=0)
    scheme: str | None = None

    @classmethod
    def of(cls, sizes: FileSizes) -> Self:
        return cls(
            source=sizes.source,
            tensor_count=sizes.tensor_count,
            resident_bytes=sizes.resident_bytes,
            drafting_bytes=sizes.drafting_bytes,
            scheme=sizes.scheme,
        )

    def to_file_sizes(self) -> FileSizes:
        return FileSizes(self.source, self.tensor_count, self.resident_bytes, self.drafting_bytes, scheme=self.scheme)


class LanguageModelRecord(RecordPart):
    """One checkpoint. ``ambiguous_aliases`` are names that also mean other records: they are refused with all."""

    slug: Slug
    name: Text
    aliases: Many[ModelName] = ()
    ambiguous_aliases: Many[ModelName] = ()
    config_kind: Annotated[ConfigKind, Field(strict=False)]
    config: dict[str, Any] = Field(description="facts under the names of a Hugging Face config.json")
    checkpoint: CheckpointSizes | None = None
    note: Text | None = None
    sources: Many[Source] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_infinities(cls, document: Any) -> Any:
        """Published configs hold bare infinities, in fields that no size depends on; JSON has no word for them."""
        if isinstance(document, Mapping) and isinstance(document.get("config"), Mapping):
            return {**document, "config": _finite(document["config"])}
        return document

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [name.lower() for name in (self.slug, *self.aliases, *self.ambiguous_aliases)]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"aliases: {twice!r} stands twice among slug and aliases")
        if self.config_kind is not ConfigKind.UPLOADED and not self.sources:
            raise ValueError("sources: a record that was not uploaded names where its facts were published")
        return self

    def to_language_model(self) -> LanguageModel:
        """The model for the calculation; ``ConfigInvalid``, ``ArchitectureNotSupported`` or ``CheckpointInvalid``."""
        model = language_model_from_config(self.config, slug=self.slug, name=self.name)
        return with_file_sizes(model, self.checkpoint.to_file_sizes()) if self.checkpoint else model


def uploaded_record(
    *,
    slug: str,
    config: Mapping[str, Any],
    aliases: tuple[str, ...] = (),
    name: str | None = None,
    checkpoint: tuple[CheckpointKind, Sequence[str]] | None = None,
) -> LanguageModelRecord:
    """The record of a user's config.json, refused unless a language model comes out of it.

    Of ``checkpoint``, contents in base64, only the sizes are kept, and only where they fit the config.
    """
    record = LanguageModelRecord(
        slug=slug, name=name or slug, aliases=aliases, config_kind=ConfigKind.UPLOADED, config=dict(config)
    )
    model = record.to_language_model()
    if checkpoint is None:
        return record
    sizes = checkpoint_sizes(*checkpoint, model)
    with_file_sizes(model, sizes)
    return record.model_copy(update={"checkpoint": CheckpointSizes.of(sizes)})


def load_model_records(
    directory: Path = SHIPPED_RECORDS, *, sources: Mapping[str, Source] | None = None
) -> dict[str, LanguageModelRecord]:
    """All records of the directory's YAML files by slug, or ``CatalogueFileInvalid`` for the first bad one.

    ``sources`` in a file lists ids of the registry. A name belongs to one record alone, unless every record that
    claims it lists it among its ambiguous aliases.
    """
    registry = load_sources() if sources is None else sources
    records: dict[str, LanguageModelRecord] = {}
    owners: dict[str, str] = {}
    shared: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(directory.glob("*.yaml")):
        record = _read_record(path.name, read_catalogue_yaml(path), registry)
        for name in (record.slug, *record.aliases):
            if name.lower() in owners:
                raise CatalogueFileInvalid(path.name, "aliases", f"{name!r} already belongs to {owners[name.lower()]}")
            owners[name.lower()] = record.slug
        for name in record.ambiguous_aliases:
            shared.setdefault(name.lower(), []).append((path.name, record.slug))
        records[record.slug] = record
    for name, claims in shared.items():
        file, slug = claims[0]
        if name in owners:
            raise CatalogueFileInvalid(file, "ambiguous_aliases", f"{name!r} belongs to {owners[name]} alone")
        if len(claims) == 1:
            raise CatalogueFileInvalid(file, "ambiguous_aliases", f"{name!r} means no other record than {slug}")
    return dict(sorted(records.items()))


def _read_record(file: str, entry: Any, registry: Mapping[str, Source]) -> LanguageModelRecord:
    if not isinstance(entry, dict):
        raise CatalogueFileInvalid(file, "(file)", "must be a record")
    cited = entry.get("sources", [])
    if not isinstance(cited, list):
        raise CatalogueFileInvalid(file, "sources", "must be a list of ids of the registry, or of sources")
    for each in cited:
        if not isinstance(each, dict) and each not in registry:
            raise CatalogueFileInvalid(file, "sources", f"{each!r} is not an id of the registry of sources")
    written_out = [each if isinstance(each, dict) else registry[each] for each in cited]
    try:
        record = LanguageModelRecord.model_validate({**entry, "sources": written_out})
        record.to_language_model()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or str(entry.get("slug", "(record)"))
        raise CatalogueFileInvalid(file, field, first["msg"].removeprefix("Value error, ")) from error
    except Invalid as error:
        raise CatalogueFileInvalid(file, ".".join(str(part) for part in error.field), error.detail) from error
    return record


def _finite(value: Any, depth: int = 0) -> Any:
    """The value with infinities and NaN as ``None``."""
    if depth > MAXIMUM_DEPTH:
        raise ConfigInvalid(f"the config is nested more than {MAXIMUM_DEPTH} deep")
    match value:
        case Mapping():
            return {key: _finite(each, depth + 1) for key, each in value.items()}
        case list():
            return [_finite(each, depth + 1) for each in value]
        case float() if not float("-inf") < value < float("inf"):
            return None
        case _:
            return value
