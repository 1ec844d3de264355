"""The schema that migrations make."""

from importlib import import_module
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from packhorse.db.engine import open_engine
from packhorse.db.metadata import BOOKKEEPING, CONTENT, JOBS, JOURNAL, METADATA, TOPOLOGY
from packhorse.db.migrate import upgrade
from tests.harness.postgres import Databases

_ROOT = Path(__file__).parents[2]


def test_a_migrated_database_stays_as_it_is(database_url: str) -> None:
    engine = open_engine(database_url, "tests")
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    engine.dispose()


def test_a_clear_under_way_counts_and_ends_after_the_upgrade(databases: Databases) -> None:
    engine = open_engine(databases.server.ensure_database("before_0008"), "tests")
    upgrade(engine, "0007")
    with engine.begin() as connection:
        for subscriber in ("sub", "source of a copy"):
            connection.execute(
                text(
                    "INSERT INTO bookkeeping.clear_command VALUES (:name, 'c1', 'main', 'log', 7)"
                ),
                {"name": subscriber},
            )
    upgrade(engine)
    with engine.connect() as connection:
        seen = connection.execute(text("SELECT command_id, state FROM bookkeeping.command_status"))
        assert seen.all() == [("c1", "SEEN")]
    engine.dispose()


def test_the_described_tables_are_those_that_migrations_make(database_url: str) -> None:
    for source in ("shared", "services"):
        for described in (_ROOT / source).rglob("tables.py"):
            import_module(".".join(described.relative_to(_ROOT / source).with_suffix("").parts))
    ours = (BOOKKEEPING, CONTENT, JOBS, JOURNAL, TOPOLOGY)
    engine = open_engine(database_url, "tests")
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "compare_type": True,
                "include_name": lambda name, kind, _: kind != "schema" or name in ours,
            },
        )
        assert compare_metadata(context, METADATA) == []
    engine.dispose()
