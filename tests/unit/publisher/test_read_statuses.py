"""What the recorder makes of records of the status topic, before anything is stored (R18, R30)."""

from dataclasses import replace

import pytest

from packhorse.messaging.api import Record
from packhorse.wire.codec import encode_status
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import CommandState, CommandStatusMessage, Status, StatusMessage
from packhorse_services.publisher.outcomes.recorder import StatusRecords, read_statuses

FAILED = StatusMessage(
    *("sub1", "main", "j1", 3, Status.REMOVED_FAILED, "p3"), attempts=2, reason="r", decided_ms=10
)
COMMAND = CommandStatusMessage("c1", "sub1", "main", CommandState.APPLIED)
LAST_MS = 253_402_300_799_000


def read(*messages: StatusMessage | CommandStatusMessage) -> list[StatusRecords]:
    records = [record(offset, one) for offset, one in enumerate(messages)]
    return list(read_statuses(records, "main"))


def record(offset: int, message: StatusMessage | CommandStatusMessage) -> Record:
    encoded = (
        encode_status(message)
        if isinstance(message, StatusMessage)
        else encode_command_status(message)
    )
    return Record("status", 0, offset, 0, None, encoded.headers, encoded.value)


def test_r18_a_single_decision_is_stored_unless_it_is_an_import() -> None:
    [failed] = read(FAILED)
    assert [one.reason for one in failed.stored] == ["r"]
    assert failed.imported == []
    [imported] = read(replace(FAILED, status=Status.IMPORTED))
    assert [one.offset for one in imported.imported] == [3]
    assert imported.stored == []


@pytest.mark.parametrize("earlier_first", [True, False])
def test_r18_an_import_that_takes_a_failure_back_leaves_its_trace(earlier_first: bool) -> None:
    later = replace(FAILED, status=Status.IMPORTED, decided_ms=11)
    [reported] = read(*((FAILED, later) if earlier_first else (later, FAILED)))
    assert [(one.status, one.decided_ms) for one in reported.stored] == [(Status.IMPORTED, 11)]
    assert reported.imported == []


def test_r9_of_two_that_were_decided_at_one_time_the_first_counts() -> None:
    [reported] = read(FAILED, replace(FAILED, reason="another"))
    assert [one.reason for one in reported.stored] == ["r"]


def test_a_command_ends_what_was_reported_before_it() -> None:
    before, behind = read(FAILED, COMMAND, replace(FAILED, offset=4))
    assert ([one.offset for one in before.stored], before.command) == ([3], COMMAND)
    assert ([one.offset for one in behind.stored], behind.command) == ([4], None)


def test_what_is_about_another_publisher_is_not_read() -> None:
    other = replace(FAILED, publisher_agent="other")
    assert read(other, replace(COMMAND, publisher_agent="other")) == [StatusRecords()]


@pytest.mark.parametrize(
    ("subscriber", "offset"), [("", 3), ("x" * 201, 3), ("a\nb", 3), ("sub1", -1)]
)
def test_r30_a_status_of_no_name_or_place_is_passed_over(subscriber: str, offset: int) -> None:
    unsound = replace(FAILED, subscriber=subscriber, offset=offset)
    [reported] = read(unsound, replace(FAILED, subscriber="y" * 200, offset=0))
    assert [one.offset for one in reported.stored] == [0]


@pytest.mark.parametrize(
    ("decided_ms", "kept"), [(-1, 0), (1, 1), (LAST_MS, LAST_MS), (LAST_MS + 1, 0)]
)
def test_r30_only_what_the_database_can_hold_is_kept(decided_ms: int, kept: int) -> None:
    [reported] = read(replace(FAILED, attempts=-1, reason="\0" * 2_001, decided_ms=decided_ms))
    [one] = reported.stored
    assert (one.attempts, one.reason, one.decided_ms) == (0, "\ufffd" * 2_000, kept)
    [reported] = read(FAILED)
    assert reported.stored[0].attempts == 2
