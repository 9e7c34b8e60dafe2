"""What a deployment may choose: environment variables that begin with ``SIZING_``, read once at start."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def default_database_url() -> str:
    """A SQLite file in the user's data folder, so that every command of a user sees the same catalogue.

    ``$XDG_DATA_HOME/accelerator-sizing/sizing.db``, without the variable under ``~/.local/share``; on
    Windows under ``%LOCALAPPDATA%``.
    """
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_DATA_HOME"
    base = os.environ.get(variable) or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(base) / 'accelerator-sizing' / 'sizing.db'}"


class Settings(BaseSettings):
    """Each field is the variable ``SIZING_`` + its name in capitals; flags of ``sizing`` override them."""

    model_config = SettingsConfigDict(env_prefix="SIZING_", frozen=True)

    database_url: str = Field(
        default_factory=default_database_url,
        description="sqlite:///… or postgresql://…; by default a SQLite file in the user's data folder",
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="origins whose pages may call the API, separated by commas; * is any"
    )
    max_body_bytes: int = Field(8_000_000, ge=1, description="a larger request body is refused with 413")
    max_import_bytes: int = Field(
        600_000_000, ge=1, description="the same for POST /benchmark-run-imports, whose files go to disk"
    )
    gzip: bool = Field(True, description="compress answers of 1 KB and more for clients that ask for it")
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field("info", description="of the server")
    access_log: bool = Field(False, description="log one line per request")
    sqlite_synchronous: Literal["NORMAL", "FULL"] = Field(
        "NORMAL", description="FULL survives power loss as well as a killed process, at far fewer writes per second"
    )
    poll_interval_s: float = Field(
        1.0, gt=0, le=3600, description="how often the catalogue is checked for the writes of other processes"
    )
    migrate_on_start: bool = Field(True, description="bring the tables up to date before taking requests")
    load_catalogue_on_start: bool = Field(True, description="store the shipped catalogue, or upgrade it, at start")

    lean_on_runs: bool = Field(True, description="sharpen answers by the stored runs; false: by physics alone")

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(origin.strip() for origin in value.split(",") if origin.strip())
        return value
