"""Runs migrations on the connection that the service hands over; for the alembic command, on the settings' database."""

from alembic import context
from sqlalchemy import Connection

from service.catalogue.database import create_database_engine
from service.catalogue.tables import Table
from service.settings import Settings


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Table.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("migrations run on a database; there is no SQL script mode, since batches read the tables")
if given := context.config.attributes.get("connection"):
    migrate(given)
else:
    with create_database_engine(Settings().database_url).begin() as own:
        migrate(own)
