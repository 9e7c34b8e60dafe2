"""The tables: what is stored, not what is said about it (schemas) nor what is calculated with (dataclasses).

A record of the catalogue is a row that names its head revision; revisions are never changed, each holds the whole
document as JSON text. Accelerators and language models have the same three tables, so that later tables can refer
to one kind by a foreign key.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, MetaData, Text, text
from sqlmodel import Field, SQLModel

from service.catalogue.database import UtcDateTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Origin(StrEnum):
    """Who wrote a revision: a release of this service, or a user of this deployment."""

    SHIPPED = "shipped"
    USER = "user"


class Event(StrEnum):
    """What a revision did."""

    CREATED = "created"
    REPLACED = "replaced"
    RETIRED = "retired"


class Table(SQLModel):
    metadata: ClassVar[MetaData] = MetaData(naming_convention=NAMING)


class RecordRow(Table):
    """``shipped_digest`` is of the shipped document that the record last took over, ``None`` for a user's own."""

    slug: str = Field(primary_key=True, max_length=100)
    head_revision: int
    head_origin: str = Field(max_length=10)
    shipped_digest: str | None = Field(default=None, max_length=64)
    retired_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class RevisionRow(Table):
    slug: str = Field(primary_key=True, max_length=100)
    revision: int = Field(primary_key=True)
    event: str = Field(max_length=10)
    origin: str = Field(max_length=10)
    document: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcDateTime)


class AliasRow(Table):
    """Names beside the slug. ``shared`` ones mean several records and are answered with the candidates."""

    alias: str = Field(primary_key=True, max_length=200)
    slug: str = Field(primary_key=True, max_length=100)
    shared: bool = False


def _record_checks() -> tuple[Any, ...]:
    return (
        CheckConstraint("slug = lower(slug)", name="slug_lower_case"),
        CheckConstraint("head_revision >= 1", name="head_revision_positive"),
        CheckConstraint("head_origin IN ('shipped', 'user')", name="head_origin_known"),
    )


def _revision_checks(record_table: str) -> tuple[Any, ...]:
    return (
        ForeignKeyConstraint(["slug"], [f"{record_table}.slug"]),
        CheckConstraint("revision >= 1", name="revision_positive"),
        CheckConstraint("origin IN ('shipped', 'user')", name="origin_known"),
        CheckConstraint("event IN ('created', 'replaced', 'retired')", name="event_known"),
    )


def _alias_checks(record_table: str) -> tuple[Any, ...]:
    own_alias = text("NOT shared")
    return (
        Index(f"uq_{record_table}_alias_own", "alias", unique=True, sqlite_where=own_alias, postgresql_where=own_alias),
        ForeignKeyConstraint(["slug"], [f"{record_table}.slug"]),
        CheckConstraint("alias = lower(alias)", name="alias_lower_case"),
    )


class AcceleratorRow(RecordRow, table=True):
    __tablename__ = "accelerator"
    __table_args__ = _record_checks()


class AcceleratorRevisionRow(RevisionRow, table=True):
    __tablename__ = "accelerator_revision"
    __table_args__ = _revision_checks("accelerator")


class AcceleratorAliasRow(AliasRow, table=True):
    __tablename__ = "accelerator_alias"
    __table_args__ = _alias_checks("accelerator")


class LanguageModelRow(RecordRow, table=True):
    __tablename__ = "language_model"
    __table_args__ = _record_checks()


class LanguageModelRevisionRow(RevisionRow, table=True):
    __tablename__ = "language_model_revision"
    __table_args__ = _revision_checks("language_model")


class LanguageModelAliasRow(AliasRow, table=True):
    __tablename__ = "language_model_alias"
    __table_args__ = _alias_checks("language_model")


class CatalogueStateRow(Table, table=True):
    """One row. ``revision`` counts the writes to the catalogue; a snapshot is of one revision."""

    __tablename__ = "catalogue_state"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = Field(default=1, primary_key=True)
    revision: int = Field(default=0)
    shipped_digest: str | None = Field(default=None, max_length=64)
