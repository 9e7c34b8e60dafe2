"""Settings of a command: flags over environment variables over defaults."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
from typing import TYPE_CHECKING, Any

from service.errors import ServiceError

if TYPE_CHECKING:
    from service.settings import Settings

FLAGS = ("database_url", "host", "port", "cors_origins", "max_body_bytes", "log_level", "sqlite_synchronous")


class SettingInvalid(ServiceError):
    code = "setting_invalid"
    title = "A setting cannot be used"


def add_database_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database-url", metavar="URL", help="sqlite:////path/sizing.db or postgresql://user@host/name"
    )


def settings_of(arguments: argparse.Namespace) -> "Settings":
    from pydantic import ValidationError

    from service.settings import Settings

    given: dict[str, Any] = {name: getattr(arguments, name, None) for name in FLAGS}
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        raise SettingInvalid(f"SIZING_{name.upper()} (or its flag): {first['msg']}") from None
