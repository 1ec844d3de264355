"""The schema that migrations make."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, text

from packhorse.db import migrate
from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPING
from packhorse.db.migrate import open_engine, upgrade
from packhorse.db.version import HEAD
from tests.harness.postgres import waiting_for_locks
from tests.harness.schema import compared, described, migration, missing_statements
from tests.harness.waiting import eventually


def test_a_migrated_database_stays_as_it_is(database_url: str) -> None:
    upgrade(database_url, "tests")
    with open_engine(database_url, "tests").connect() as connection:
        stored = connection.execute(text("SELECT version_num, needs_program FROM packhorse_schema"))
        assert stored.all() == [(HEAD, "0001")]


def test_who_reads_waits_for_no_migration_that_waits_itself(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_release(config: Config, _revision: str) -> None:
        change = "ALTER TABLE bookkeeping.slot ADD COLUMN next_release text"
        config.attributes["connection"].execute(text(change))

    monkeypatch.setattr(migrate, "HEAD", "9001")
    monkeypatch.setattr(migrate, "_PAUSE_S", 0.1)
    monkeypatch.setattr(migrate.command, "upgrade", next_release)
    look = "SELECT * FROM bookkeeping.slot"
    with ThreadPoolExecutor(1) as pool, connect(database_url, "tests") as held:
        held.execute(look)
        upgrading = pool.submit(upgrade, database_url, "tests")
        eventually(lambda: waiting_for_locks(database_url), what="the migration waits")
        with connect(database_url, "tests") as reader:
            reader.execute(look)
        held.rollback()
        upgrading.result(120)
        assert "next_release" in [one.name for one in held.execute(look).description or ()]


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
