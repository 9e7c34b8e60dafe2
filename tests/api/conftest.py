"""A client of the whole service, on SQLite and on Postgres."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.app import create_app
from service.catalogue.live import LiveCatalogue
from service.settings import Settings


@pytest.fixture
def settings(database_url: str) -> Settings:
    """By physics alone: reading the shipped runs as evidence takes a second, and most tests do not ask for it."""
    return Settings(
        database_url=database_url,
        cors_origins=("https://dashboard.example",),
        max_body_bytes=1_000_000,
        lean_on_runs=False,
    )


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


def catalogue_of(client: TestClient) -> LiveCatalogue:
    """What the running application reads: to change the database under it."""
    assert isinstance(client.app, FastAPI)
    catalogue: LiveCatalogue = client.app.state.catalogue
    return catalogue
