"""What is wanted of subscriptions, as rows; and who may write them, and when (R11)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from psycopg import Connection, DataError
from psycopg.errors import LockNotAvailable, ProgramLimitExceeded

from packhorse.db.connect import connect
from packhorse.wire.messages import ControlCommand, DesiredState, ResetCommand
from packhorse_services.subscriber.commands import control, ledger
from packhorse_services.subscriber.commands.control import DesiredControl
from packhorse_services.subscriber.commands.handler import (
    CommandHandler,
    PreparedCommand,
    check_lease,
)
from packhorse_services.subscriber.commands.reset import ResetTarget
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced, reason
from packhorse_services.subscriber.journal.sequences import HighWater

PAUSE, RUN = DesiredState.PAUSE, DesiredState.RUN
EPOCH = 3
HANDLER = CommandHandler("sub", ("main",), True, cast("Any", None), "packages")
COMMAND = ControlCommand("c", "sub", "main", PAUSE, journal_id="log")
ARGUMENTS = PreparedCommand("log", 10), lambda: None


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.lease (holder, epoch, expires_at) "
            "VALUES ('w', %s, 'infinity')",
            (EPOCH,),
        )
        yield connection


@pytest.fixture
def other(database_url: str) -> Iterator[Connection]:
    """Another session, which waits for no lock."""
    with connect(database_url, "tests", autocommit=True) as connection:
        yield connection


def test_the_last_command_says_what_is_wanted(connection: Connection) -> None:
    control.store(connection, "main", PAUSE, "first")
    control.store(connection, "main", RUN, "second")
    control.store(connection, "bulk", PAUSE, "third")
    for agent in ("main", "bulk", "new"):
        control.introduce(connection, agent)
    assert control.load(connection) == {
        "main": DesiredControl(RUN, "second"),
        "bulk": DesiredControl(PAUSE, "third"),
        "new": DesiredControl(RUN, ""),
    }


def test_what_was_looked_at_stays_until_the_commit(
    connection: Connection, other: Connection
) -> None:
    control.store(connection, "main", PAUSE, "first")
    with connection.transaction():
        assert control.lock(connection, "main") is PAUSE
        check_lease(connection, EPOCH)
        for table in ("subscription_control", "lease"):
            with pytest.raises(LockNotAvailable):
                other.execute(f"SELECT FROM bookkeeping.{table} FOR UPDATE NOWAIT".encode())


@pytest.mark.parametrize("error", [DataError("22001"), ProgramLimitExceeded("54000")])
def test_a_command_that_the_database_refuses_is_rejected_and_holds_up_no_other(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(connection: Connection, *_: object) -> None:
        connection.execute("DELETE FROM bookkeeping.lease")
        raise error

    monkeypatch.setattr(control, "store", refuse)
    assert HANDLER.apply(connection, COMMAND, EPOCH, *ARGUMENTS) == EPOCH
    states = connection.execute(
        "SELECT state, reason FROM bookkeeping.command_status ORDER BY decided_at"
    )
    assert states.fetchall() == [("SEEN", ""), ("REJECTED", reason(error))]


def test_r11_a_command_of_who_has_lost_the_lease_has_no_effect(connection: Connection) -> None:
    with pytest.raises(Fenced):
        HANDLER.apply(connection, COMMAND, EPOCH - 1, *ARGUMENTS)
    assert control.load(connection) == {}
    HANDLER.apply(connection, COMMAND, EPOCH, *ARGUMENTS)
    assert control.load(connection) == {"main": DesiredControl(PAUSE, "c")}


def test_r11_a_reset_beside_an_import_gives_way_before_it_does_anything(
    connection: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds then, renewals of the lease would wait for."""
    begun = list[Any]()
    monkeypatch.setattr(ledger, "begin", lambda *given: begun.append(given))
    connection.execute(
        "INSERT INTO bookkeeping.position (publisher_agent, journal_id, epoch, log_offset, "
        "package_id) VALUES ('other', 'log', %s, 9, '')",
        (EPOCH,),
    )
    command = ResetCommand("reset", "sub", "main", 2, journal_id="log")
    prepared = PreparedCommand("log", 10, ResetTarget("main", "log", Mark(2, "p"), HighWater({})))
    with other.transaction():
        other.execute("SELECT FROM bookkeeping.position FOR UPDATE")
        with pytest.raises(LockNotAvailable):
            HANDLER.apply(connection, command, EPOCH, prepared, lambda: None)
    assert begun == []


def test_r9_no_status_is_marked_as_sent_beside_a_reset(
    connection: Connection, other: Connection
) -> None:
    """Who marks shares the row that a reset holds alone."""

    def mark() -> None:
        with pytest.raises(LockNotAvailable):
            other.execute("SELECT FROM bookkeeping.subscription_control FOR SHARE NOWAIT")

    control.store(connection, "main", DesiredState.STOP, "stop")
    command = ResetCommand("reset", "sub", "main", 2, journal_id="log")
    prepared = PreparedCommand("log", 10, ResetTarget("main", "log", Mark(2, "p"), HighWater({})))
    assert HANDLER.apply(connection, command, EPOCH, prepared, mark) == EPOCH + 1


def test_r19_a_reset_gives_up_the_clears_and_the_snapshot_of_its_own_agent(
    connection: Connection,
) -> None:
    connection.execute("""
        INSERT INTO bookkeeping.clear_command (subscriber, command_id, publisher_agent, journal_id,
            up_to) VALUES ('sub', 'c1', 'main', 'log', 9), ('sub', 'c2', 'bulk', 'log', 9);
        INSERT INTO bookkeeping.joined_snapshot (snapshot_id, log_offset, journal_id,
            publisher_agents, subscriber, left_out) VALUES ('s', 5, 'log', '{bulk}', 'sub', '')
    """)
    handler, left = replace(HANDLER, agents=("main", "bulk")), []
    for epoch, agent in ((EPOCH, "main"), (EPOCH + 1, "bulk")):
        control.store(connection, agent, DesiredState.STOP, "stop")
        command = ResetCommand(f"reset {agent}", "sub", agent, 2, journal_id="log")
        target = ResetTarget(agent, "log", Mark(2, "p"), HighWater({}))
        prepared = PreparedCommand("log", 10, target)
        assert handler.apply(connection, command, epoch, prepared, lambda: None) == epoch + 1
        left.append(
            [
                connection.execute(f"SELECT {column} FROM bookkeeping.{table}".encode()).fetchall()
                for column, table in (("command_id", "clear_command"), ("1", "joined_snapshot"))
            ]
        )
    assert left == [[[("c2",)], [(1,)]], [[], []]]
