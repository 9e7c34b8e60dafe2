"""The migrations lead to the tables of the code and back, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from service.catalogue.database import create_database_engine, exclusive_connection
from service.catalogue.migrating import database_revision, head_revision, migrate, migration_config
from service.catalogue.tables import Table


def test_up_down_and_up_again_leaves_the_tables_of_the_code(empty_database_url: str) -> None:
    engine = create_database_engine(empty_database_url)
    assert migrate(engine) == head_revision()
    with exclusive_connection(engine) as connection:
        command.downgrade(migration_config(connection), "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []
    engine.dispose()


def test_runs_that_are_stored_are_counted_and_dated_by_the_migration(empty_database_url: str) -> None:
    engine = create_database_engine(empty_database_url)
    with exclusive_connection(engine) as connection:
        command.upgrade(migration_config(connection), "2026_12_01_2330")
        for index, (day, tp) in enumerate((("2026-11-30", 8), ("2026", 8), (None, None))):
            run: dict[str, object] = {
                "id": str(index),
                "content_digest": str(index),
                "measured_on": day,
                "tp": tp,
                "file_index": 0,
            }
            run |= {"origin": "user", "created_at": datetime(2026, 12, 1, tzinfo=UTC), "evidence_revision": 1}
            names = [*run, "calibrates", "details"]
            marks = ", ".join(f":{name}" for name in names)
            insert = text(f"INSERT INTO benchmark_run ({', '.join(names)}) VALUES ({marks})")  # noqa: S608 - our names
            connection.execute(insert, {**run, "calibrates": True, "details": "{}"})
        command.upgrade(migration_config(connection), "head")
        counts = connection.execute(text("SELECT value, run_count FROM benchmark_run_facet WHERE facet = 'tp'")).all()
        dated = connection.execute(text("SELECT measured_month, measured_year FROM benchmark_run ORDER BY id")).all()
    assert {tuple(row) for row in counts} == {("8", 2), ("null", 1)}
    assert [tuple(row) for row in dated] == [("2026-11", "2026"), (None, "2026"), (None, None)]
    engine.dispose()


def test_every_constraint_has_the_name_that_the_code_gives_it(empty_database_url: str) -> None:
    engine = create_database_engine(empty_database_url)
    migrate(engine)
    inspector = inspect(engine)
    for table in Table.metadata.sorted_tables:
        stored = {check["name"] for check in inspector.get_check_constraints(table.name)}
        stored |= {key["name"] for key in inspector.get_foreign_keys(table.name)}
        stored.add(inspector.get_pk_constraint(table.name)["name"])
        assert stored == {constraint.name for constraint in table.constraints}
    engine.dispose()


def test_processes_that_start_together_migrate_once(empty_database_url: str) -> None:
    engines = [create_database_engine(empty_database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(migrate, engines)) == {head_revision()}
    for engine in engines:
        engine.dispose()


def test_a_database_of_a_newer_release_is_left_alone(empty_database_url: str) -> None:
    engine = create_database_engine(empty_database_url)
    migrate(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'from_the_future'")
    assert migrate(engine) == "from_the_future"
    with engine.connect() as connection:
        assert database_revision(connection) == "from_the_future"
    engine.dispose()
