"""Brings a database to the tables of this release. Alembic is configured here: an installed wheel needs no file."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

import service
from service.catalogue.database import exclusive_connection


def migrations_folder() -> Path:
    """In a checkout ``migrations/`` stands beside the package; an installed package has it inside."""
    package = Path(service.__file__).parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


def migration_config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@cache
def known_migrations() -> tuple[str, ...]:
    """Of this release, newest first."""
    scripts = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return tuple(script.revision for script in scripts)


def head_revision() -> str:
    """The newest migration that this release knows."""
    return known_migrations()[0]


def database_revision(connection: Connection) -> str | None:
    """The migration that the database is at; ``None`` before the first."""
    return MigrationContext.configure(connection).get_current_revision()


def is_behind(revision: str | None) -> bool:
    """Whether this release needs newer tables. One that it does not know is of a newer release, and serves as well:
    migrations work beside the previous release.
    """
    return revision is None or revision in known_migrations()[1:]


def migrate(engine: Engine, *, to: str = "head") -> str | None:
    """Upgrade to the newest tables and say which they are; several processes may do it at once.

    A database of a newer release (this one is the replica not yet replaced) is left alone.
    """
    with exclusive_connection(engine) as connection:
        if is_behind(database_revision(connection)):
            command.upgrade(migration_config(connection), to)
        return database_revision(connection)
