"""The connection to SQLite or Postgres, and the one way to write: a transaction that no other writer interleaves.

SQLite runs in WAL mode, so readers never wait. A deferred transaction that reads and then writes fails at once
when another process wrote in between, so every writing transaction begins IMMEDIATE. Threads of one process queue
at a lock of ours rather than at SQLite's, whose waiting is not fair and ends after five seconds.
On Postgres the row of ``catalogue_state`` is the lock: ``records.writing`` updates it first.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, DateTime, Dialect, Engine, FromClause, create_engine, event, make_url
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.types import TypeDecorator
from sqlmodel import Session

from service.errors import ServiceError

BUSY_TIMEOUT_MS = 5000
WRITES = "sizing_writes"
MIGRATION_LOCK = 0x512196  # any number that nothing else in the database uses

_writer_locks: dict[str, threading.RLock] = {}


class DatabaseUrlInvalid(ServiceError):
    code = "database_url_invalid"
    title = "The database URL cannot be used"


class UtcDateTime(TypeDecorator[datetime]):
    """A UTC time on both databases: SQLite would give it back naive, and both would take a naive one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone would be read as another one")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def database_url(text: str) -> URL:
    """The URL with the driver that this service installs.

    >>> database_url("postgres://sizing@db/sizing").drivername, database_url("sqlite:////data/sizing.db").drivername
    ('postgresql+psycopg', 'sqlite+pysqlite')
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseUrlInvalid("the database URL is not a URL such as sqlite:////data/sizing.db") from None
    match url.get_backend_name():
        case "sqlite":
            if not url.database or url.database == ":memory:":
                raise DatabaseUrlInvalid("the SQLite URL names no file; write sqlite:////absolute/path.db")
            return url.set(drivername="sqlite+pysqlite")
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case other:
            raise DatabaseUrlInvalid(f"the database is sqlite or postgresql, not {other}")


def sqlite_file(text: str) -> Path | None:
    """The file of a SQLite URL; ``None`` for Postgres."""
    url = database_url(text)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def create_database_engine(text: str, *, sqlite_synchronous: str = "NORMAL") -> Engine:
    """Connects lazily; the folder of a SQLite file is made."""
    url = database_url(text)
    if url.get_backend_name() == "postgresql":
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    if file := sqlite_file(text):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseUrlInvalid(f"the folder {file.parent} cannot be made: {error.strerror}") from None
    engine = create_engine(url, connect_args={"check_same_thread": False})
    engine.dialect.statement_compiler = _SqliteWithHints
    _set_up_sqlite(engine, sqlite_synchronous)
    return engine


class _SqliteWithHints(SQLiteCompiler):
    """Writes ``INDEXED BY`` after a table, which SQLAlchemy knows the like of for other databases."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        return text


def _set_up_sqlite(engine: Engine, synchronous: str) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            f"synchronous={synchronous}",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing_transaction(engine: Engine) -> Iterator[Session]:
    """A session that commits when the block ends and undoes everything when it raises."""
    with writer_lock(engine), Session(engine.execution_options(**{WRITES: True})) as session, session.begin():
        yield session


def writer_lock(engine: Engine) -> threading.RLock:
    """The lock that the writers of this process share for one SQLite file."""
    return _writer_locks.setdefault(str(engine.url), threading.RLock())


@contextmanager
def exclusive_connection(engine: Engine) -> Iterator[Connection]:
    """A transaction that other processes doing the same wait for: migrations and the first load.

    On SQLite this is the write lock of the file; on Postgres an advisory lock until the end of the transaction.
    """
    with writer_lock(engine), engine.execution_options(**{WRITES: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        yield connection
