"""Settings come from the environment, are checked once and do not change."""

import pytest
from pydantic import ValidationError

from service.settings import Settings


def test_the_database_is_a_file_of_the_user_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/home/someone/data")
    assert Settings().database_url == "sqlite:////home/someone/data/accelerator-sizing/sizing.db"
    monkeypatch.setenv("SIZING_DATABASE_URL", "postgresql://sizing@db/sizing")
    assert Settings().database_url == "postgresql://sizing@db/sizing"


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZING_CORS_ORIGINS", "https://one.example, https://two.example,")
    assert Settings().cors_origins == ("https://one.example", "https://two.example")
    assert Settings(cors_origins=("*",)).cors_origins == ("*",)


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "70000"), ("MAX_BODY_BYTES", "0"), ("SQLITE_SYNCHRONOUS", "OFF"), ("POLL_INTERVAL_S", "0")],
)
def test_a_value_that_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SIZING_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]  # the point of the test
