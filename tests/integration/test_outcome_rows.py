"""Outcomes as rows: a later decision takes a row's place, and touches no other one (R9, R18)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ResetCommand,
    Status,
)
from packhorse_services.publisher.commands import command_rows
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.outcomes.outcome_rows import StoredOutcome
from tests.harness.publishing import AGENT

FAILED = StoredOutcome("sub1", "j1", 6, "p6", Status.REMOVED_FAILED, 3, "broken", "c1", 1_000)
ELSEWHERE = (
    replace(FAILED, subscriber="sub2"),
    replace(FAILED, journal_id="j2"),
    replace(FAILED, offset=5),
)
COMMAND_ID = "c" * 32


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        yield connection


def write(connection: Connection, *outcomes: StoredOutcome, agent: str = AGENT) -> None:
    outcome_rows.write(connection, agent, [(one, b"entry") for one in outcomes])


def rows(connection: Connection, columns: str = "*") -> list[tuple[Any, ...]]:
    found = connection.execute(
        f"SELECT {columns} FROM bookkeeping.outcome "
        "ORDER BY agent, subscriber, journal_id, log_offset".encode()
    )
    return found.fetchall()


def failures(connection: Connection) -> list[tuple[Any, ...]]:
    return [
        row[:4]
        for row in rows(connection, "agent, subscriber, journal_id, log_offset, status")
        if row[4] == "REMOVED_FAILED"
    ]


def give(connection: Connection, command: Command, became: CommandState) -> None:
    command_rows.write(connection, command)
    status = CommandStatusMessage(COMMAND_ID, command.subscriber, command.publisher_agent, became)
    assert command_rows.note_status(connection, status)


def test_r18_a_later_decision_takes_the_place_of_all_that_an_earlier_one_said(
    connection: Connection,
) -> None:
    earlier = replace(FAILED, status=Status.REMOVED, package_id="", left_out=True)
    outcome_rows.write(connection, AGENT, [(earlier, None)])
    connection.execute(
        "UPDATE bookkeeping.outcome SET redistributed_as = 'p9', dismissed_at = now(), "
        "recorded_at = now() - interval '1 hour'"
    )
    later = replace(FAILED, attempts=7, reason="anew", command_id="c2", decided_ms=2_000)
    write(connection, later)
    assert rows(
        connection,
        "package_id, status, attempts, reason, command_id, extract(epoch FROM decided_at)::int, "
        "left_out, entry, redistributed_as, dismissed_at, recorded_at > now() - interval '1 min'",
    ) == [("p6", "REMOVED_FAILED", 7, "anew", "c2", 2, False, b"entry", "", None, True)]


def test_r9_a_repeat_changes_nothing_of_what_was_done_with_the_entry(
    connection: Connection,
) -> None:
    write(connection, FAILED)
    connection.execute(
        "UPDATE bookkeeping.outcome SET redistributed_as = 'p9', dismissed_at = now()"
    )
    before = rows(connection)
    write(connection, FAILED, replace(FAILED, offset=7, decided_ms=0))
    outcome_rows.imported_after_all(connection, AGENT, [replace(FAILED, status=Status.IMPORTED)])
    assert rows(connection)[:1] == before


def test_r18_an_import_takes_back_what_it_has_overtaken_and_nothing_else(
    connection: Connection,
) -> None:
    write(connection, FAILED, *ELSEWHERE)
    write(connection, FAILED, agent="other")
    connection.execute("UPDATE bookkeeping.outcome SET redistributed_as = 'p9'")
    imported = replace(FAILED, status=Status.IMPORTED, decided_ms=2_000)
    outcome_rows.imported_after_all(connection, AGENT, [imported])
    assert failures(connection) == [
        *((AGENT, "sub1", "j1", 5), (AGENT, "sub1", "j2", 6), (AGENT, "sub2", "j1", 6)),
        ("other", "sub1", "j1", 6),
    ]
    shown = "status, attempts, reason, command_id, entry, redistributed_as"
    assert rows(connection, shown)[1] == ("IMPORTED", 0, "", "", None, "")
    assert outcome_rows.failed_counts(connection, AGENT) == {"sub1": 2, "sub2": 1}
    there = outcome_rows.statuses_between(connection, AGENT, "j1", 5, 6)
    assert {at: {name: one.status for name, one in by.items()} for at, by in there.items()} == {
        5: {"sub1": Status.REMOVED_FAILED},
        6: {"sub1": Status.IMPORTED, "sub2": Status.REMOVED_FAILED},
    }


def test_r18_a_reset_takes_back_what_lies_behind_it_and_nothing_else(
    connection: Connection,
) -> None:
    write(connection, FAILED, *ELSEWHERE, replace(FAILED, offset=7, decided_ms=0))
    write(connection, FAILED, agent="other")
    reset = ResetCommand(COMMAND_ID, "sub1", AGENT, 5, journal_id="j1")
    give(connection, reset, CommandState.APPLIED)
    connection.execute("UPDATE bookkeeping.outcome SET redistributed_as = 'p9'")
    before = rows(connection)
    outcome_rows.forget_behind_reset(connection, "other", COMMAND_ID)
    assert rows(connection) == before, "it is another agent's command"
    outcome_rows.forget_behind_reset(connection, AGENT, COMMAND_ID)
    assert failures(connection) == [
        *((AGENT, "sub1", "j1", 5), (AGENT, "sub1", "j2", 6), (AGENT, "sub2", "j1", 6)),
        ("other", "sub1", "j1", 6),
    ]
    shown = "log_offset, status, attempts, reason, command_id, entry, redistributed_as"
    assert rows(connection, shown)[1] == (6, "IMPORTED", 0, "", "", None, "")
    assert len(rows(connection)) == 5, "of what has no time a repeat can't be told from news"


@pytest.mark.parametrize(
    ("command", "became"),
    [
        (ResetCommand(COMMAND_ID, "sub1", AGENT, 5, journal_id="j1"), CommandState.REJECTED),
        (ResetCommand(COMMAND_ID, "sub1", AGENT, 5, journal_id="j1"), CommandState.SEEN),
        (ClearCommand(COMMAND_ID, "sub1", AGENT, 5, journal_id="j1"), CommandState.APPLIED),
    ],
)
def test_r18_a_command_that_moved_nothing_back_takes_nothing_back(
    connection: Connection, command: Command, became: CommandState
) -> None:
    write(connection, FAILED)
    give(connection, command, became)
    before = rows(connection)
    outcome_rows.forget_behind_reset(connection, AGENT, COMMAND_ID)
    assert rows(connection) == before
