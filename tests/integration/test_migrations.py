"""The schema that migrations make."""

from importlib import import_module
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from packhorse.db.engine import open_engine
from packhorse.db.metadata import BOOKKEEPING, CONTENT, JOURNAL, METADATA
from packhorse.db.migrate import upgrade

_ROOT = Path(__file__).parents[2]


def test_a_migrated_database_stays_as_it_is(database_url: str) -> None:
    engine = open_engine(database_url, "tests")
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    engine.dispose()


def test_the_described_tables_are_those_that_migrations_make(database_url: str) -> None:
    for source in ("shared", "services"):
        for described in (_ROOT / source).rglob("tables.py"):
            import_module(".".join(described.relative_to(_ROOT / source).with_suffix("").parts))
    ours = (BOOKKEEPING, CONTENT, JOURNAL)
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
