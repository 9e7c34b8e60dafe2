"""The connection: what SQLite is set to, times that keep their zone, writers that do not interleave."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlmodel import Session

from service.catalogue.database import DatabaseUrlInvalid, create_database_engine, database_url, sqlite_file
from service.catalogue.records import writing
from service.catalogue.tables import CatalogueStateRow, LanguageModelRow, Origin


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://host/name", "sqlite://", "sqlite:///:memory:"])
def test_a_database_that_the_service_cannot_keep_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUrlInvalid):
        database_url(url)


def test_a_sqlite_file_is_durable_and_concurrent_by_its_settings(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new folder' / 'sizing.db'}"
    engine = create_database_engine(url, sqlite_synchronous="FULL")
    with engine.connect() as connection:
        pragma = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    engine.dispose()
    assert pragma == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000, "synchronous": 2}  # 2 is FULL
    assert sqlite_file(url) == tmp_path / "new folder" / "sizing.db"


def test_a_time_comes_back_in_utc_whatever_its_zone_was(engine: Engine) -> None:
    noon_in_tokyo = datetime(2026, 12, 1, 12, tzinfo=timezone(timedelta(hours=9)))
    with writing(engine) as session:
        session.add(_retired_model(noon_in_tokyo))
    with Session(engine) as session:
        stored = session.get_one(LanguageModelRow, "old").retired_at
    assert stored == datetime(2026, 12, 1, 3, tzinfo=UTC)  # 12:00 at +09:00 is 03:00 UTC
    assert stored.tzinfo is UTC


def test_a_time_without_a_zone_is_refused(engine: Engine) -> None:
    naive = datetime(2026, 12, 1, 12)  # noqa: DTZ001 - the point of the test
    with pytest.raises(StatementError, match="without a zone"), writing(engine) as session:
        session.add(_retired_model(naive))


def _retired_model(at: datetime) -> LanguageModelRow:
    return LanguageModelRow(slug="old", head_revision=1, head_origin=Origin.USER, retired_at=at)


def test_every_one_of_many_concurrent_writes_counts(engine: Engine) -> None:
    with Session(engine) as session:
        before = session.get_one(CatalogueStateRow, 1).revision

    def write(_: int) -> None:
        with writing(engine) as session:
            session.get_one(CatalogueStateRow, 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(80)))
    with Session(engine) as session:
        assert session.get_one(CatalogueStateRow, 1).revision == before + 80


def test_a_failed_write_leaves_nothing_behind(engine: Engine) -> None:
    def write_and_fail() -> None:
        with writing(engine) as session:
            session.add(LanguageModelRow(slug="half-written", head_revision=1, head_origin=Origin.USER))
            session.flush()
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM language_model WHERE slug = 'half-written'")).scalar() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO accelerator VALUES ('Upper', 1, 'user', NULL, NULL)",
        "INSERT INTO accelerator VALUES ('zero', 0, 'user', NULL, NULL)",
        "INSERT INTO accelerator VALUES ('whose', 1, 'somebody', NULL, NULL)",
        "INSERT INTO accelerator_alias VALUES ('orphan', 'no-such-slug', false)",
        "INSERT INTO catalogue_state VALUES (2, 0, NULL)",
    ],
)
def test_the_database_itself_refuses_what_cannot_be(engine: Engine, statement: str) -> None:
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(text(statement))
