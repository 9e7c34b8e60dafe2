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

# What lists of benchmark runs filter by value, and what they order or take ranges by: an index of each, with the id.
RUN_VALUES = (
    "accelerator",
    "accelerator_name",
    "model",
    "model_name",
    "weights",
    "kv_cache",
    "compute",
    "engine",
    "engine_version",
    "gpu_count",
    "node_count",
    "tp",
    "pp",
    "ep",
    "dp",
    "speculation",
    "prefix_caching",
    "scenario",
    "mlperf_version",
    "mlperf_division",
    "mlperf_availability",
    "mlperf_valid",
    "submitter",
    "system_name",
    "power_scope",
    "tool",
    "origin",
    "calibrates",
    "measured_by",
    "measured_month",
    "measured_year",
)
RUN_FIGURES = (
    "ttft_central_s",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_central_s",
    "tpot_p50_s",
    "tpot_mean_s",
    "tpot_p99_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s",
    "power_w",
)
RUN_LOADS = ("concurrency", "request_rate_per_s", "isl_mean_tokens", "osl_mean_tokens")
RUN_KEYS = (*RUN_VALUES, *RUN_FIGURES, *RUN_LOADS, "measured_on", "evidence_revision")
RUN_KEYS_INDEXED_WHOLE = ("origin", "calibrates", "evidence_revision", "prefix_caching", "mlperf_valid")
RUN_FACETS = (
    "accelerator",
    "model",
    "weights",
    "kv_cache",
    "engine",
    "engine_version",
    "scenario",
    "gpu_count",
    "tp",
    "speculation",
    "mlperf_version",
    "mlperf_division",
    "submitter",
    "power_scope",
    "tool",
    "origin",
    "calibrates",
)


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


def run_index(*columns: str) -> Index:
    """Of the runs that have a value in the last column but the id: most runs have none in most columns.

    SQLite does not use such an index where a column always has one, and Postgres not for a truth value.
    """
    has_value = None if columns[-1] in RUN_KEYS_INDEXED_WHOLE else text(f"{columns[-1]} IS NOT NULL")
    name = f"ix_benchmark_run_{'_'.join(columns)}"
    return Index(name, *columns, "id", sqlite_where=has_value, postgresql_where=has_value)


class BenchmarkRunRow(Table, table=True):
    """A measured run, never changed after it was stored: ``benchmark_records.BenchmarkRun`` says what each field is.

    ``measured_month`` and ``measured_year`` are the beginning of ``measured_on``, so that each is found as a value.

    One run of one file is stored once. The indexes are what a list of a million runs needs: for each value that is
    filtered by, its runs in the order of their ids, and for each figure, its order of all runs and of one scenario's.
    """

    __tablename__ = "benchmark_run"
    __table_args__ = (
        Index("uq_benchmark_run_content", "content_digest", "file_index", unique=True),
        CheckConstraint("origin IN ('shipped', 'user')", name="origin_known"),
        CheckConstraint("file_index >= 0", name="file_index_not_negative"),
        Index("ix_benchmark_run_configuration", "accelerator", "model", "weights", "scenario", "concurrency", "id"),
        Index("ix_benchmark_run_accelerator_model", "accelerator", "model", "id"),
        Index("ix_benchmark_run_pair_key", "pair_key", "scenario", "id"),
        *(run_index(column) for column in RUN_KEYS),
        *(run_index("scenario", column) for column in RUN_FIGURES),
    )

    id: str = Field(primary_key=True, max_length=18)
    origin: str = Field(max_length=10)
    created_at: datetime = Field(sa_type=UtcDateTime)
    evidence_revision: int
    content_digest: str = Field(max_length=64)
    file_index: int
    file_name: str | None = Field(default=None, max_length=300)
    tool: str | None = Field(default=None, max_length=100)
    tool_version: str | None = Field(default=None, max_length=100)
    accelerator: str | None = Field(default=None, max_length=100)
    accelerator_revision: int | None = None
    accelerator_name: str | None = Field(default=None, max_length=300)
    gpu_count: int | None = None
    node_count: int | None = None
    model: str | None = Field(default=None, max_length=100)
    model_name: str | None = Field(default=None, max_length=500)
    weights: str | None = Field(default=None, max_length=100)
    kv_cache: str | None = Field(default=None, max_length=100)
    compute: str | None = Field(default=None, max_length=100)
    engine: str | None = Field(default=None, max_length=100)
    engine_version: str | None = Field(default=None, max_length=100)
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    layout: str | None = Field(default=None, max_length=100)
    speculation: str | None = Field(default=None, max_length=100)
    prefix_caching: bool | None = None
    scenario: str | None = Field(default=None, max_length=40)
    concurrency: float | None = None
    request_rate_per_s: float | None = None
    isl_mean_tokens: float | None = None
    isl_std_tokens: float | None = None
    osl_mean_tokens: float | None = None
    osl_std_tokens: float | None = None
    mlperf_version: str | None = Field(default=None, max_length=40)
    mlperf_division: str | None = Field(default=None, max_length=40)
    mlperf_availability: str | None = Field(default=None, max_length=40)
    mlperf_valid: bool | None = None
    submitter: str | None = Field(default=None, max_length=200)
    system_name: str | None = Field(default=None, max_length=500)
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    pair_key: str | None = Field(default=None, max_length=32)
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    ttft_central_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_mean_s: float | None = None
    tpot_p99_s: float | None = None
    tpot_central_s: float | None = None
    output_tokens_per_s: float | None = None
    output_tokens_per_s_per_gpu: float | None = None
    output_tokens_per_s_per_user: float | None = None
    input_tokens_per_s: float | None = None
    power_w: float | None = None
    power_scope: str | None = Field(default=None, max_length=20)
    measured_by: str | None = Field(default=None, max_length=200)
    measured_on: str | None = Field(default=None, max_length=10)
    measured_month: str | None = Field(default=None, max_length=7)
    measured_year: str | None = Field(default=None, max_length=4)
    source_title: str | None = Field(default=None, max_length=500)
    source_ref: str | None = Field(default=None, max_length=500)
    calibrates: bool
    details: str = Field(sa_type=Text)


class RunFacetRow(Table, table=True):
    """How many runs have this value, as JSON, of a column that facets are asked of: kept at each write to the runs."""

    __tablename__ = "benchmark_run_facet"
    __table_args__ = (
        CheckConstraint("run_count >= 0", name="run_count_not_negative"),
        Index("ix_benchmark_run_facet_run_count", "facet", "run_count", "value"),
    )

    facet: str = Field(primary_key=True, max_length=40)
    value: str = Field(primary_key=True, sa_type=Text)
    run_count: int


class DeletedRunRow(Table, table=True):
    """A run that was deleted, and at which revision: how other processes learn of it."""

    __tablename__ = "deleted_benchmark_run"
    __table_args__ = (Index("ix_deleted_benchmark_run_evidence_revision", "evidence_revision"),)

    id: str = Field(primary_key=True, max_length=18)
    evidence_revision: int


class EvidenceStateRow(Table, table=True):
    """One row. ``revision`` counts the writes to the runs; each run carries the revision that stored it."""

    __tablename__ = "evidence_state"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = Field(default=1, primary_key=True)
    revision: int = Field(default=0)
    shipped_digest: str | None = Field(default=None, max_length=64)
