"""What the audit reads of a subscriber's own database about its beginning."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from psycopg import Connection

from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.db.connect import connect
from packhorse_services.pipeline.audit.subscriber_state import AuditedSubscription, read_situation
from tests.harness.postgres import Databases


@pytest.fixture
def connection(databases: Databases) -> Iterator[Connection]:
    """A database with two subscriptions, of which one began with a snapshot."""
    with closing(connect(databases.new("situation"), "tests")) as connection:
        for agent, offset, started in (("main", 9, -1), ("other", 8, 6)):
            connection.execute(
                "INSERT INTO bookkeeping.position (publisher_agent, journal_id, epoch, "
                "log_offset, package_id, started_offset) VALUES (%s, 'log', 1, %s, '', %s)",
                (agent, offset, started),
            )
        yield connection


def record(connection: Connection, journal_id: str) -> None:
    connection.execute(
        "INSERT INTO bookkeeping.joined_snapshot "
        "(snapshot_id, log_offset, journal_id, publisher_agents, subscriber, left_out) "
        "VALUES ('0123456789abcdef', 7, %s, '{main}', '', 'digest')",
        (journal_id,),
    )


def test_r13_a_subscription_that_the_snapshot_has_not_was_added(connection: Connection) -> None:
    record(connection, "log")
    situation = read_situation(connection)
    assert situation.joined == LoadedSnapshot("0123456789abcdef", 7, ("main",), "", "digest")
    assert situation.added == (AuditedSubscription("other", 8, 6),)
    assert situation.lowest == 9


@pytest.mark.parametrize("known", ["nothing", "another journal"])
def test_a_database_without_such_a_record_says_nothing(connection: Connection, known: str) -> None:
    if known == "another journal":
        record(connection, "another")
    situation = read_situation(connection)
    assert situation.joined is None
    assert situation.added == ()
    assert situation.lowest == 8
