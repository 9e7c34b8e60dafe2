"""Whether the process is alive and whether it can do its work."""

from fastapi.testclient import TestClient
from sqlalchemy import text

from service.catalogue.migrating import head_revision
from tests.api.conftest import catalogue_of


def test_a_started_service_is_live_and_ready(client: TestClient) -> None:
    assert client.get("/health/live").json()["status"] == "live"
    ready = client.get("/health/ready")
    assert ready.status_code == 200
    assert ready.json()["migration"] == head_revision()
    assert ready.json()["database"] in {"sqlite", "postgresql"}


def test_an_unmigrated_database_makes_the_service_not_ready(client: TestClient) -> None:
    with catalogue_of(client).engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version"))
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not_ready"
    assert client.get("/health/live").status_code == 200
