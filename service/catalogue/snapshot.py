"""The catalogue in memory: immutable, of one revision, swapped whole. The hot routes read it and nothing else.

``Snapshot`` resolves names exactly (lower-cased, never by likeness). Documents are parsed when first asked for and
then kept, also from one snapshot to the next as long as the record stays at its revision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine, and_, select

from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.language_models import LANGUAGE_MODELS
from service.catalogue.model_records import LanguageModelRecord, load_model_records
from service.catalogue.records import Record, RecordKind
from service.catalogue.sources import Source
from service.catalogue.tables import CatalogueStateRow, Origin
from service.errors import AmbiguousName, RecordRetired
from service.sizing.accelerator import Accelerator
from service.sizing.language_model import LanguageModel


@dataclass(frozen=True, eq=False)
class SnapshotRecord:
    """A record at its head revision."""

    slug: str
    revision: int
    origin: Origin
    retired_at: datetime | None
    document: str


def _cited(sources: Iterable[Source]) -> list[dict[str, str]]:
    return [{"title": source.title, "url": source.url} for source in sources]


class SnapshotAccelerator(SnapshotRecord):
    @cached_property
    def record(self) -> AcceleratorRecord:
        return AcceleratorRecord.model_validate_json(self.document)

    @cached_property
    def accelerator(self) -> Accelerator:
        return self.record.to_accelerator()

    @cached_property
    def cited(self) -> list[dict[str, str]]:
        """The sources as an answer names them."""
        return _cited(self.record.sources)


class SnapshotLanguageModel(SnapshotRecord):
    @cached_property
    def record(self) -> LanguageModelRecord:
        return LanguageModelRecord.model_validate_json(self.document)

    @cached_property
    def model(self) -> LanguageModel:
        return self.record.to_language_model()

    @cached_property
    def cited(self) -> list[dict[str, str]]:
        """The sources as an answer names them."""
        return _cited(self.record.sources)


E = TypeVar("E", bound=SnapshotRecord)


class NamedRecords(Generic[E]):
    """The records of one kind, by slug and by alias. Iterates over the ones in use, by slug."""

    def __init__(
        self, kind: RecordKind[Any], entries: Iterable[E], slugs_by_alias: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._kind = kind
        self.by_slug: Mapping[str, E] = {entry.slug: entry for entry in sorted(entries, key=lambda entry: entry.slug)}
        self.slugs_by_alias = slugs_by_alias
        self.in_use: tuple[E, ...] = tuple(entry for entry in self.by_slug.values() if entry.retired_at is None)

    def named(self, name: str) -> E | None:
        """By slug or alias, retired records by their slug included; ``None`` where there is no such record."""
        asked = name.lower() if name.isascii() else name  # folding other letters would be likeness
        if entry := self.by_slug.get(asked):
            return entry
        slugs = self.slugs_by_alias.get(asked, ())
        if len(slugs) > 1:
            raise AmbiguousName(name, slugs)
        return self.by_slug[slugs[0]] if slugs else None

    def find(self, name: str) -> E:
        """As ``named``, but there has to be one."""
        entry = self.named(name)
        if entry is None:
            raise self._kind.unknown(name, {*self.slugs_by_alias, *(entry.slug for entry in self.in_use)})
        return entry

    def get(self, name: str) -> E:
        """As ``find``, but a retired record cannot be used: ``RecordRetired``."""
        entry = self.find(name)
        if entry.retired_at is not None:
            raise RecordRetired(self._kind.noun, entry.slug)
        return entry


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The catalogue at one revision. ``accelerator`` and ``language_model`` are what an answer is computed from."""

    revision: int
    accelerators: NamedRecords[SnapshotAccelerator]
    language_models: NamedRecords[SnapshotLanguageModel]

    def accelerator(self, name: str) -> SnapshotAccelerator:
        return self.accelerators.get(name)

    def language_model(self, name: str) -> SnapshotLanguageModel:
        return self.language_models.get(name)


def read_snapshot(engine: Engine, previous: Snapshot | None = None) -> Snapshot:
    """The stored catalogue as of one moment; records that have not moved since ``previous`` are taken from it."""
    isolation = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**isolation) as connection:
        return Snapshot(
            revision=catalogue_revision(connection),
            accelerators=_read_records(
                connection, ACCELERATORS, SnapshotAccelerator, previous.accelerators.by_slug if previous else {}
            ),
            language_models=_read_records(
                connection, LANGUAGE_MODELS, SnapshotLanguageModel, previous.language_models.by_slug if previous else {}
            ),
        )


def catalogue_revision(connection: Connection) -> int:
    return connection.execute(select(CatalogueStateRow.revision)).scalar_one()  # type: ignore[call-overload,no-any-return]  # SQLModel's attributes are typed as values


def _read_records(
    connection: Connection, kind: RecordKind[Any], entry: type[E], previous: Mapping[str, E]
) -> NamedRecords[E]:
    row, revision, alias = kind.row.__table__, kind.revision_row.__table__, kind.alias_row.__table__  # type: ignore[attr-defined]  # set by SQLModel
    heads = connection.execute(select(row.c.slug, row.c.head_revision, row.c.head_origin, row.c.retired_at)).all()
    kept = [previous[slug] for slug, head, _, _ in heads if slug in previous and previous[slug].revision == head]
    moved = {slug for slug, *_ in heads} - {each.slug for each in kept}
    documents: dict[str, str] = {}
    if moved:
        at_head = and_(revision.c.slug == row.c.slug, revision.c.revision == row.c.head_revision)
        wanted = select(row.c.slug, revision.c.document).join_from(row, revision, at_head).where(row.c.slug.in_(moved))
        documents = {each.slug: each.document for each in connection.execute(wanted)}
    read = [entry(slug, head, Origin(origin), at, documents[slug]) for slug, head, origin, at in heads if slug in moved]
    aliases: dict[str, tuple[str, ...]] = {}
    for name, slug in connection.execute(select(alias.c.alias, alias.c.slug).order_by(alias.c.alias, alias.c.slug)):
        aliases[name] = (*aliases.get(name, ()), slug)
    return NamedRecords(kind, [*kept, *read], aliases)


def shipped_snapshot() -> Snapshot:
    """The catalogue of this release, straight from its files: for commands that run without a database."""
    return Snapshot(
        revision=0,
        accelerators=_shipped_records(ACCELERATORS, SnapshotAccelerator, load_accelerator_records().values()),
        language_models=_shipped_records(LANGUAGE_MODELS, SnapshotLanguageModel, load_model_records().values()),
    )


def _shipped_records(kind: RecordKind[Any], entry: type[E], records: Iterable[Record]) -> NamedRecords[E]:
    aliases: dict[str, tuple[str, ...]] = {}
    entries = []
    for record in records:
        entries.append(entry(record.slug, 1, Origin.SHIPPED, None, record.model_dump_json()))
        for name in {*kind.own_aliases(record), *kind.shared_aliases(record)}:
            aliases[name.lower()] = (*aliases.get(name.lower(), ()), record.slug)
    return NamedRecords(kind, entries, aliases)
