"""Statuses as rows: what is sent of whom, what a mark says, and what is kept (R9)."""

from collections.abc import Iterator

import pytest
from psycopg import Connection
from psycopg.errors import DivisionByZero, LockNotAvailable

from packhorse.db.connect import connect
from packhorse.wire.messages import Status
from packhorse_services.subscriber.announce import statuses
from packhorse_services.subscriber.announce.statuses import Decision, record_statuses
from packhorse_services.subscriber.commands import control
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position

_POSITIONS = """
    INSERT INTO bookkeeping.position
        (publisher_agent, journal_id, epoch, log_offset, package_id)
    VALUES ('main', 'j1', 1, 9, ''), ('other', 'j1', 1, 9, '');
"""


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(_POSITIONS.encode())
        for agent in ("main", "other"):
            decide(connection, agent, Status.REMOVED, 3, 2)
            decide(connection, agent, Status.IMPORTED, 6, 5, 4)
        yield connection


def decide(connection: Connection, agent: str, status: Status, *offsets: int) -> None:
    position = Position(agent, "j1", 1, Mark(9, ""))
    decisions = [Decision(Mark(offset, f"p{offset}"), status) for offset in offsets]
    record_statuses(connection, "sub", position, decisions)


def unsent(connection: Connection, agent: str) -> list[int]:
    return [one.offset for one in statuses._unsent(connection, agent, "instance")]


def kept(connection: Connection, agent: str) -> list[int]:
    found = connection.execute(
        "SELECT log_offset FROM bookkeeping.status WHERE publisher_agent = %s ORDER BY 1", (agent,)
    )
    return [offset for (offset,) in found.fetchall()]


def test_what_is_decided_anew_takes_the_place_of_all_that_was_said(connection: Connection) -> None:
    connection.execute("UPDATE bookkeeping.status SET decided_at = '2020-01-01'")
    anew = Decision(Mark(2, "other"), Status.SKIPPED, 7, "why", "command", left_out=True)
    record_statuses(connection, "copy", Position("main", "j2", 2, Mark(9, "")), [anew])
    message = statuses._unsent(connection, "main", "instance")[0]
    assert (message.subscriber, message.journal_id, message.package_id) == ("copy", "j2", "other")
    assert (message.status, message.attempts, message.reason) == (Status.SKIPPED, 7, "why")
    assert (message.command_id, message.left_out) == ("command", True)
    assert message.decided_ms > 1_700_000_000_000


def test_r9_a_mark_ends_the_sending_of_its_own_subscription_up_to_it(
    connection: Connection,
) -> None:
    assert unsent(connection, "main") == [2, 3, 4, 5, 6]
    assert statuses._mark_sent(connection, "main", 1, 3)
    assert (unsent(connection, "main"), unsent(connection, "other")) == ([4, 5, 6], [2, 3, 4, 5, 6])
    assert statuses._mark_sent(connection, "main", 1, 2), "one that comes late changes nothing"
    assert unsent(connection, "main") == [4, 5, 6]
    assert not statuses._mark_sent(connection, "main", 2, 6), "a reset has moved it"
    assert unsent(connection, "main") == [4, 5, 6]


def test_what_is_sent_is_forgotten_but_for_the_newest_of_each_other_kind(
    connection: Connection,
) -> None:
    assert statuses._mark_sent(connection, "main", 1, 5)
    assert kept(connection, "main") == [2, 3, 6], "what was removed is known for a week"
    decide(connection, "other", Status.REMOVED, 7)
    connection.execute("UPDATE bookkeeping.status SET decided_at = now() - interval '8 days'")
    assert statuses._mark_sent(connection, "main", 1, 6)
    assert kept(connection, "main") == [3], "and the last of it for ever"
    assert kept(connection, "other") == [2, 3, 4, 5, 6, 7]


def test_a_kind_is_what_became_of_packages_of_one_log_by_one_subscriber(
    connection: Connection,
) -> None:
    kinds = [("j2", "sub", Status.REMOVED), ("j1", "copy", Status.REMOVED)]
    kinds += [("j1", "sub", Status.REMOVED_FAILED), ("j1", "sub", Status.SKIPPED)]
    for number, (journal_id, subscriber, status) in enumerate(kinds):
        position = Position("main", journal_id, 1, Mark(9, ""))
        decisions = [Decision(Mark(offset + 2 * number, "p"), status) for offset in (11, 12)]
        record_statuses(connection, subscriber, position, decisions)
    connection.execute("UPDATE bookkeeping.status SET decided_at = now() - interval '8 days'")
    assert statuses._mark_sent(connection, "main", 1, 18)
    assert kept(connection, "main") == [3, 12, 14, 16, 18]


def test_a_mark_is_moved_with_what_it_lets_forget(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "_FORGET", "SELECT 1 / 0")
    with pytest.raises(DivisionByZero):
        statuses._mark_sent(connection, "main", 1, 3)
    assert unsent(connection, "main") == [2, 3, 4, 5, 6]


def test_nothing_is_marked_while_a_reset_is_not_committed(
    connection: Connection, database_url: str
) -> None:
    """It would raise the mark again that the reset moves down."""
    control.introduce(connection, "main")
    with (
        connect(database_url, "tests", autocommit=True) as resets,
        resets.transaction(),
        connection.transaction(force_rollback=True),
    ):
        control.lock(resets, "main")
        connection.execute("SET LOCAL lock_timeout = '1ms'")
        with pytest.raises(LockNotAvailable):
            statuses._mark_sent(connection, "main", 1, 3)
