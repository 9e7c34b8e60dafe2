"""``sizing serve``, ``sizing migrate``, ``sizing openapi``."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.cli.settings import add_database_argument, settings_of
from service.errors import ServiceError

if TYPE_CHECKING:
    from service.settings import Settings

SERVE_EPILOG = """\
examples:
  sizing serve
  sizing serve --host 0.0.0.0 --port 80 --database-url postgresql://sizing@db/sizing
  SIZING_CORS_ORIGINS=https://dashboard.example sizing serve
"""


class DatabaseUnreachable(ServiceError):
    code = "database_unreachable"
    title = "The database does not answer"


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8000); 0 takes a free one")
    add_database_argument(parser)
    parser.add_argument("--cors-origins", metavar="ORIGIN,…", help="web pages that may call the API; * is any")
    parser.add_argument("--log-level", choices=["critical", "error", "warning", "info", "debug"])
    parser.add_argument("--list-settings", action=ListSettings, help="name every environment variable and leave")
    parser.epilog = SERVE_EPILOG


class ListSettings(argparse.Action):
    """``--list-settings``, read off the settings themselves."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from service.settings import Settings

        for name, field in Settings.model_fields.items():
            default = "" if field.default_factory else f" (default {field.default!r})"
            print(f"SIZING_{name.upper():<24} {field.description}{default}")
        parser.exit()


def serve(arguments: argparse.Namespace) -> int:
    """Runs until it is stopped. What would stop the start is said in one line before the server is set up."""
    settings = settings_of(arguments)
    check_database(settings)
    import logging

    import uvicorn

    from service.app import create_app

    logging.basicConfig(format="%(levelname)s: %(name)s: %(message)s")
    logging.getLogger("sizing").setLevel(settings.log_level.upper())
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=settings.access_log,
        server_header=False,
    )
    return 0


def check_database(settings: "Settings") -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from service.catalogue.database import create_database_engine

    engine = create_database_engine(settings.database_url)
    try:
        engine.connect().close()
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        url = engine.url.render_as_string(hide_password=True)
        raise DatabaseUnreachable(f"the database {url} does not answer: {reason}") from None
    finally:
        engine.dispose()


def add_migrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Safe to run from several processes at once. `sizing serve` does the same at start."
    add_database_argument(parser)


def migrate_database(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    check_database(settings)
    from service.catalogue.database import create_database_engine
    from service.catalogue.loading import load_shipped_catalogue
    from service.catalogue.migrating import migrate
    from service.catalogue.shipped_benchmarks import load_shipped_runs

    engine = create_database_engine(settings.database_url, sqlite_synchronous=settings.sqlite_synchronous)
    try:
        revision = migrate(engine)
        written = load_shipped_catalogue(engine)
        runs = load_shipped_runs(engine)
    finally:
        engine.dispose()
    url = engine.url.render_as_string(hide_password=True)
    print(f"{url} is at migration {revision}; {written} records of the shipped catalogue and {runs} runs stored")
    return 0


def add_openapi_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example:\n  sizing openapi > openapi/openapi.json"


def print_contract(_: argparse.Namespace) -> int:
    from service.api.contract import contract_text
    from service.app import create_app
    from service.settings import Settings

    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]  # a text stream, also under a pipe
    sys.stdout.write(contract_text(create_app(Settings())))
    return 0
