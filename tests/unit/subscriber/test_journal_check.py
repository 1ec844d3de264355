"""Where a subscription starts, and whether the log is still the one of its position (R13, R24)."""

from dataclasses import replace

import pytest

from packhorse.messaging.api import Bounds, Outgoing, Record, TopicSpec, damaged
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Gap, JournalMismatch
from packhorse_services.subscriber.journal.journal_check import (
    StartPolicy,
    package_at,
    place,
    verify,
    verify_log,
)
from packhorse_services.subscriber.journal.position import Position
from tests.unit.subscriber.given_rows import GivenRows

TOPIC = "packages"


@pytest.fixture
def journal() -> MemoryJournal:
    """A journal with packages `id0` to `id4`."""
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec(TOPIC)])
    for number in range(5):
        headers = {PACKAGE_ID_HEADER: f"id{number}".encode()}
        journal.append(TOPIC, Outgoing(b"", headers)).result(120)
    return journal


def placed(journal: MemoryJournal, start: StartPolicy) -> Position:
    return place(GivenRows().connection, journal, TOPIC, "main", epoch=1, start=start)


def at(journal: MemoryJournal, offset: int, package_id: str | None = None) -> Position:
    mark = Mark(offset, f"id{offset}" if package_id is None else package_id)
    return Position("main", journal.identity(TOPIC), 1, mark)


def test_r13_what_is_left_of_a_log_is_taken_by_name_only(journal: MemoryJournal) -> None:
    assert not placed(journal, StartPolicy.OLDEST).incomplete
    journal.truncate(TOPIC, 1)
    with pytest.raises(Gap, match="begins at 1"):
        placed(journal, StartPolicy.EARLIEST)
    oldest = placed(journal, StartPolicy.OLDEST)
    assert (oldest.offset, oldest.started_offset, oldest.incomplete) == (0, 0, True)


def test_r24_who_starts_at_the_latest_knows_which_package_that_is(journal: MemoryJournal) -> None:
    latest = placed(journal, StartPolicy.LATEST)
    assert latest.mark == Mark(4, "id4")
    verify(journal, TOPIC, latest)
    journal.truncate(TOPIC, 5)
    assert placed(journal, StartPolicy.LATEST).mark == Mark(4, "")


@pytest.mark.parametrize("oldest", range(6))
@pytest.mark.parametrize("offset", range(-1, 7))
def test_r13_r24_the_log_holds_what_was_and_what_comes(
    journal: MemoryJournal, oldest: int, offset: int
) -> None:
    journal.truncate(TOPIC, oldest)
    if offset > 4:
        with pytest.raises(JournalMismatch, match="ends at 4"):
            verify_log(journal, TOPIC, at(journal, offset))
    elif offset + 1 < oldest:
        with pytest.raises(Gap):
            verify_log(journal, TOPIC, at(journal, offset))
    else:
        assert verify_log(journal, TOPIC, at(journal, offset)) == Bounds(oldest, 5)
        verify(journal, TOPIC, at(journal, offset))


def test_r24_another_journal_or_another_package_is_a_mismatch(journal: MemoryJournal) -> None:
    with pytest.raises(JournalMismatch, match="holds package 'id2'"):
        verify(journal, TOPIC, at(journal, 2, "another"))
    journal.truncate(TOPIC, 2)
    with pytest.raises(JournalMismatch, match="holds package 'id2'"):
        verify(journal, TOPIC, at(journal, 2, "another"))
    with pytest.raises(JournalMismatch, match="created anew"):
        verify(journal, TOPIC, replace(at(journal, 2), journal_id="another"))
    verify(journal, TOPIC, at(journal, 2, ""))


class Losing(MemoryJournal):
    """Gives one record as it is told to, and may trim the log as it is asked for it."""

    given: Record | None = None
    trims = False

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        if self.trims:
            self.truncate(topic, offset + 1)
        return self.given


def test_r24_what_was_trimmed_meanwhile_or_is_damaged_proves_nothing(
    journal: MemoryJournal,
) -> None:
    losing = Losing(journal._log)
    with pytest.raises(JournalMismatch, match="holds package ''"):
        verify(losing, TOPIC, at(losing, 2))
    losing.given = damaged(TOPIC, 0, 2, "bits")
    verify(losing, TOPIC, at(losing, 2))
    assert package_at(losing, TOPIC, 2) is None
    losing.given, losing.trims = None, True
    verify(losing, TOPIC, at(losing, 2))
