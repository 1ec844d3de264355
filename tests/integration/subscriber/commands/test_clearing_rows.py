"""Which clear commands a step ends, and which reports of commands are whose (R12, R19)."""

from collections.abc import Iterator

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.wire.messages import CommandState
from packhorse_services.subscriber.commands import ledger

_PENDING = """
    INSERT INTO bookkeeping.clear_command
        (command_id, subscriber, publisher_agent, journal_id, up_to)
    VALUES ('near', 'sub', 'main', 'j1', 5), ('far', 'sub', 'main', 'j1', 6),
        ('agent', 'sub', 'other', 'j1', 5), ('journal', 'sub', 'main', 'j2', 5),
        ('copied', 'source', 'main', 'j1', 5);
    INSERT INTO bookkeeping.command_status
        (command_id, state, subscriber, publisher_agent, removed, decided_at)
    SELECT command_id, 'SEEN', subscriber, publisher_agent, 2, now() - interval '1 hour'
    FROM bookkeeping.clear_command;
"""
ALL = {"near", "far", "agent", "journal", "copied"}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(_PENDING.encode())
        yield connection


def pending(connection: Connection) -> set[str]:
    found = connection.execute("SELECT command_id FROM bookkeeping.clear_command")
    return {command_id for (command_id,) in found.fetchall()}


def ended(connection: Connection) -> list[tuple[str, str, int, str]]:
    return connection.execute(
        "SELECT command_id, state, removed, reason FROM bookkeeping.command_status "
        "WHERE state <> 'SEEN' ORDER BY command_id"
    ).fetchall()


def test_r19_a_position_ends_the_clears_of_its_own_subscription_up_to_it(
    connection: Connection,
) -> None:
    ledger.finish_clears(connection, "sub", "main", "j1", 4)
    assert pending(connection) == ALL
    ledger.finish_clears(connection, "sub", "main", "j1", 5)
    assert pending(connection) == ALL - {"near"}
    assert ended(connection) == [("near", "APPLIED", 2, "")]


@pytest.mark.parametrize(
    ("agent", "journal_id", "up_to", "gone"),
    [
        ("main", None, None, {"near", "far", "journal"}),
        (None, "j1", None, {"journal"}),
        ("main", None, 5, {"near", "journal"}),
        ("main", None, 4, set()),
    ],
)
def test_r24_clears_are_given_up_for_one_subscription_or_for_other_logs(
    connection: Connection,
    agent: str | None,
    journal_id: str | None,
    up_to: int | None,
    gone: set[str],
) -> None:
    ledger.abandon_clears(connection, "sub", "why", agent=agent, journal_id=journal_id, up_to=up_to)
    assert pending(connection) == ALL - gone
    assert ended(connection) == [(one, "REJECTED", 2, "why") for one in sorted(gone)]


def test_what_was_removed_is_counted_for_its_command(connection: Connection) -> None:
    ledger.count_removed(connection, ["near", "near", "far", ""])
    counted = connection.execute("SELECT command_id, removed FROM bookkeeping.command_status")
    assert dict(counted.fetchall()) == {
        **dict.fromkeys(ALL, 2),
        "near": 4,
        "far": 3,
    }


def test_r12_reports_are_sent_in_order_each_once_and_a_sources_never(
    connection: Connection,
) -> None:
    def states() -> list[tuple[str, CommandState]]:
        found = ledger.unsent(connection, "sub", "instance")
        return [(one.command_id, one.state) for one in found if one.command_id != "agent"]

    connection.execute("DELETE FROM bookkeeping.command_status WHERE command_id = 'journal'")
    connection.execute(
        "UPDATE bookkeeping.command_status SET decided_at = decided_at - interval '1 min' "
        "WHERE command_id = 'far'"
    )
    connection.execute(
        "INSERT INTO bookkeeping.command_status (command_id, state, subscriber, publisher_agent, "
        "decided_at) SELECT command_id, 'APPLIED', subscriber, publisher_agent, decided_at "
        "FROM bookkeeping.command_status WHERE command_id = 'far'"
    )
    seen = [("far", CommandState.SEEN), ("far", CommandState.APPLIED), ("near", CommandState.SEEN)]
    assert states() == seen
    ledger.mark_sent(connection, ledger.unsent(connection, "sub", "instance")[:1])
    assert states() == seen[1:]
