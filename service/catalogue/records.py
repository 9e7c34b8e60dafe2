"""How records are kept: created, replaced, retired, each write a new revision that nothing changes afterwards.

Accelerators and language models are kept alike; ``accelerators.py`` and ``language_models.py`` say what differs.
Every function takes the session of a ``writing`` block, in which no other writer can interleave.

A retired record keeps its history and its slug; its aliases are free again. Replacing it brings it back.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Engine
from sqlmodel import Session, col, delete, select, update

from service.catalogue.database import writing_transaction
from service.catalogue.tables import AliasRow, CatalogueStateRow, Event, Origin, RecordRow, RevisionRow
from service.errors import NameTaken, RevisionMismatch, UnknownRecord, UnknownRevision


class Record(Protocol):
    """The form of a stored document: a Pydantic model that names itself."""

    @property
    def slug(self) -> str: ...
    def model_dump_json(self) -> str: ...


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class RecordKind(Generic[R]):
    """The tables and words of one kind of record.

    ``own_aliases`` belong to one record alone; ``shared_aliases`` are names that mean several records, which are
    answered with the candidates instead of one of them.
    """

    noun: str
    row: type[RecordRow]
    revision_row: type[RevisionRow]
    alias_row: type[AliasRow]
    unknown: type[UnknownRecord]
    own_aliases: Callable[[R], Collection[str]]
    shared_aliases: Callable[[R], Collection[str]]


@dataclass(frozen=True, slots=True)
class Revision:
    """One line of a record's history."""

    slug: str
    revision: int
    event: Event
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What a revision holds."""

    revision: Revision
    document: str


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A write to the catalogue: one transaction that also counts up the catalogue's revision.

    The counter's row is written first: on Postgres it is what concurrent writers wait for.
    """
    with writing_transaction(engine) as session:
        session.exec(update(CatalogueStateRow).values(revision=CatalogueStateRow.revision + 1))
        yield session


def create_record(session: Session, kind: RecordKind[R], record: R, *, origin: Origin = Origin.USER) -> int:
    """Store a new record as revision 1. ``NameTaken`` if its slug or an alias is in use, retired slugs included."""
    if session.get(kind.row, record.slug):
        raise NameTaken(
            f"the {kind.noun} {record.slug!r} exists, be it retired; PUT with If-Match replaces it or brings it back"
        )
    if holder := session.exec(select(kind.alias_row).where(kind.alias_row.alias == record.slug)).first():
        raise NameTaken(f"{record.slug!r} is an alias of {holder.slug!r}")
    session.add(kind.row(slug=record.slug, head_revision=1, head_origin=origin, shipped_digest=_digest(record, origin)))
    session.flush()
    _add_revision(session, kind, Revision(record.slug, 1, Event.CREATED, origin, _now()), record.model_dump_json())
    _set_aliases(session, kind, record)
    return 1


def replace_record(
    session: Session, kind: RecordKind[R], record: R, *, expected_revision: int | None, origin: Origin = Origin.USER
) -> int:
    """Store the record as the next revision; ``expected_revision`` is the one that the writer has read."""
    row = _head(session, kind, record.slug, expected_revision)
    row.head_revision += 1
    row.head_origin = origin
    row.retired_at = None
    row.shipped_digest = _digest(record, origin) or row.shipped_digest
    session.add(row)
    session.flush()
    revision = Revision(row.slug, row.head_revision, Event.REPLACED, origin, _now())
    _add_revision(session, kind, revision, record.model_dump_json())
    _set_aliases(session, kind, record)
    return row.head_revision


def retire_record(session: Session, kind: RecordKind[R], slug: str, *, expected_revision: int | None) -> int:
    """Take the record out of use, as a revision with the document it had."""
    row = _head(session, kind, slug, expected_revision)
    if row.retired_at is not None:
        return row.head_revision
    document = get_document(session, kind, slug, row.head_revision).document
    row.head_revision += 1
    row.head_origin = Origin.USER
    row.retired_at = _now()
    session.add(row)
    session.flush()
    revision = Revision(slug, row.head_revision, Event.RETIRED, Origin.USER, row.retired_at)
    _add_revision(session, kind, revision, document)
    session.exec(delete(kind.alias_row).where(col(kind.alias_row.slug) == slug))
    return row.head_revision


def get_document(session: Session, kind: RecordKind[R], slug: str, revision: int) -> StoredDocument:
    """Of any revision, the newest or an old one."""
    stored = session.get(kind.revision_row, (slug, revision)) if revision < 2**31 else None
    if stored is None:
        row = _known(session, kind, slug)
        raise UnknownRevision(slug, revision, row.head_revision)
    return StoredDocument(_revision(stored), stored.document)


def list_revisions(session: Session, kind: RecordKind[R], slug: str) -> Sequence[Revision]:
    """The history, newest first."""
    _known(session, kind, slug)
    table = kind.revision_row
    rows = session.exec(select(table).where(table.slug == slug).order_by(col(table.revision).desc()))
    return [_revision(row) for row in rows]


def document_digest(record: Record) -> str:
    return hashlib.sha256(record.model_dump_json().encode()).hexdigest()


def _digest(record: Record, origin: Origin) -> str | None:
    return document_digest(record) if origin is Origin.SHIPPED else None


def _known(session: Session, kind: RecordKind[R], slug: str) -> RecordRow:
    row = session.get(kind.row, slug)
    if row is None:
        raise kind.unknown(slug, session.exec(select(kind.row.slug)).all())
    return row


def _head(session: Session, kind: RecordKind[R], slug: str, expected_revision: int | None) -> RecordRow:
    row = _known(session, kind, slug)
    if expected_revision is not None and row.head_revision != expected_revision:
        raise RevisionMismatch(
            f"{slug} is at revision {row.head_revision}, not {expected_revision}; read it again and decide anew"
        )
    return row


def _add_revision(session: Session, kind: RecordKind[R], revision: Revision, document: str) -> None:
    session.add(
        kind.revision_row(
            slug=revision.slug,
            revision=revision.revision,
            event=revision.event,
            origin=revision.origin,
            document=document,
            created_at=revision.created_at,
        )
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _revision(row: RevisionRow) -> Revision:
    return Revision(row.slug, row.revision, Event(row.event), Origin(row.origin), row.created_at)


def _set_aliases(session: Session, kind: RecordKind[R], record: R) -> None:
    table = kind.alias_row
    session.exec(delete(table).where(col(table.slug) == record.slug))
    own = {alias.lower() for alias in kind.own_aliases(record)} - {record.slug}
    shared = {alias.lower() for alias in kind.shared_aliases(record)} - {record.slug} - own
    wanted = own | shared
    if slug := session.exec(select(kind.row.slug).where(col(kind.row.slug).in_(wanted))).first():
        raise NameTaken(f"the alias {slug!r} is the slug of another {kind.noun}")
    for holder in session.exec(select(table).where(col(table.alias).in_(wanted))):
        if holder.alias in own or not holder.shared:
            raise NameTaken(f"the alias {holder.alias!r} belongs to the {kind.noun} {holder.slug!r}")
    session.add_all([table(alias=alias, slug=record.slug, shared=alias in shared) for alias in sorted(wanted)])
    session.flush()
