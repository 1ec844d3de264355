"""The schema that migrations make."""

from alembic.autogenerate import compare_metadata
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, text

from packhorse.db.metadata import BOOKKEEPING
from packhorse.db.migrate import open_engine, upgrade
from tests.harness.postgres import Databases
from tests.harness.schema import compared, described, migration, missing_statements


def test_a_migrated_database_stays_as_it_is(database_url: str) -> None:
    upgrade(database_url, "tests")
    with open_engine(database_url, "tests").connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM packhorse_schema")) == 1


def test_a_clear_under_way_counts_and_ends_after_the_upgrade(databases: Databases) -> None:
    url = databases.server.ensure_database("before_0008")
    upgrade(url, "tests", "0007")
    engine = open_engine(url, "tests")
    with engine.begin() as connection:
        for subscriber in ("sub", "source of a copy"):
            connection.execute(
                text(
                    "INSERT INTO bookkeeping.clear_command VALUES (:name, 'c1', 'main', 'log', 7)"
                ),
                {"name": subscriber},
            )
    upgrade(url, "tests")
    with engine.connect() as connection:
        seen = connection.execute(text("SELECT command_id, state FROM bookkeeping.command_status"))
        assert seen.all() == [("c1", "SEEN")]


def test_the_described_tables_are_those_that_migrations_make(database_url: str) -> None:
    with open_engine(database_url, "tests").connect() as connection:
        assert compare_metadata(compared(connection), described()) == []


def test_the_next_migration_is_generated_from_the_described_tables(database_url: str) -> None:
    changed = MetaData()
    for table in described().tables.values():
        table.to_metadata(changed)
    changed.tables["content.node"].append_column(Column("locale", Text))
    Table("draft", changed, Column("id", BigInteger, primary_key=True), schema=BOOKKEEPING)
    engine = open_engine(database_url, "tests")
    with engine.begin() as connection:
        statements = missing_statements(connection, changed)
        assert len(statements) == 2
        for statement in statements:
            connection.execute(text(statement))
    with engine.connect() as connection:
        assert missing_statements(connection, changed) == []
        dropped = missing_statements(connection, described())
    assert sorted(dropped) == [
        "ALTER TABLE content.node DROP COLUMN locale",
        "DROP TABLE bookkeeping.draft",
    ]
    written: dict[str, str] = {}
    exec(migration("another table", statements, "0041"), written)
    assert (written["revision"], written["down_revision"]) == ("0042", "0041")
