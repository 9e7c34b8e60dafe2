"""Databases for the tests: every test that asks for one runs on SQLite and on Postgres."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.catalogue.database import create_database_engine
from service.catalogue.loading import load_shipped_catalogue
from service.catalogue.migrating import migrate
from service.catalogue.shipped_benchmarks import load_shipped_runs
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

BOTH = ["sqlite", "postgres"]


@pytest.fixture(autouse=True)
def _settings_of_the_machine_do_not_reach_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SIZING_") and not name.startswith("SIZING_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))


@pytest.fixture(params=BOTH)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, of its own for each test."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sizing.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server.create_database()


@pytest.fixture(params=BOTH)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with the shipped catalogue, of its own for each test.

    Each takes tens of MB: a file goes with its test, those of Postgres with their server, as dropping one takes longer
    than making it.
    """
    if request.param == "sqlite":
        file = tmp_path / "sizing.db"
        shutil.copy(request.getfixturevalue("_loaded_sqlite"), file)
        yield f"sqlite:///{file}"
        for path in tmp_path.glob("sizing.db*"):
            path.unlink()
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server.create_database(template=request.getfixturevalue("_loaded_postgres"))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_database_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def _loaded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("loaded") / "sizing.db"
    _load(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def _loaded_postgres(postgres_server: PostgresServer) -> str:
    url = postgres_server.create_database()
    _load(url)
    return url


def _load(url: str) -> None:
    engine = create_database_engine(url)
    migrate(engine)
    load_shipped_catalogue(engine)
    load_shipped_runs(engine)
    engine.dispose()
