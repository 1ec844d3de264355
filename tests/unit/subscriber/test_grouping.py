"""Which packages share a transaction, and which numbers are repeats or impossible (R8, R27)."""

from dataclasses import replace
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.packages.body import pack
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.subscriber.journal.arrivals import Arrival, arrival_of
from packhorse_services.subscriber.journal.grouping import Group, after_removal, next_group, single
from packhorse_services.subscriber.journal.selection import Selection
from packhorse_services.subscriber.journal.sequences import (
    MOST_SKIPPED,
    HighWater,
    ImpossibleSequence,
)
from tests.harness.feed import Feed, page
from tests.unit.subscriber.given_rows import GivenRows

ALL = Selection("sub")
PRODUCER = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(MemoryJournal(MemoryLog()), open_blobs(str(tmp_path)), PRODUCER)


def arrivals(feed: Feed) -> list[Arrival]:
    return [arrival_of(record, "main") for record in feed.records()]


def grouped(feed: Feed, high_water: HighWater | None = None) -> Group:
    group = next_group(arrivals(feed), "main", high_water or HighWater({}), ALL)
    assert group is not None
    return group


def test_r27_r35_a_repeat_beside_what_is_left_out_is_the_only_repeat(feed: Feed) -> None:
    feed.add(page("/a"))
    feed.add_for(["another"], page("/b"))
    feed.again(feed.records()[0])
    group = grouped(feed)
    assert [mark.offset for mark, _ in group.fresh] == [0]
    assert [mark.offset for mark, _ in group.left_out] == [1]
    assert [mark.offset for mark in group.repeats] == [2]


def test_r8_a_group_that_is_rolled_back_has_noted_nothing(feed: Feed) -> None:
    feed.add(page("/a"))
    high_water = HighWater({})
    (only,) = arrivals(feed)
    for group in (grouped(feed, high_water), single(only, "main", high_water, ALL)):
        assert [mark.offset for mark, _ in group.fresh] == [0]
    after_removal(high_water, [only], wanted=True)
    assert len(grouped(feed, high_water).fresh) == 1


def test_r27_a_group_ends_before_an_impossible_number(feed: Feed) -> None:
    feed.add(page("/a"))
    feed.sequence += MOST_SKIPPED + 1
    feed.add(page("/b"))
    feed.sequence -= MOST_SKIPPED + 1
    feed.add(page("/c"))
    group = grouped(feed)
    assert (group.first.offset, group.last.offset) == (0, 0)
    assert next_group(arrivals(feed)[1:], "main", group.high_water, ALL) is None


def test_a_body_by_reference_is_alone(feed: Feed) -> None:
    feed.add(page("/a"))
    message = feed.message(Action.ADD, ["/b"], (), [page("/b")])
    by_reference = pack([page("/b")], message.entry.package_id, feed.blobs, inline_bytes=1)
    feed.append(replace(message, body=by_reference.body))
    feed.add(page("/c"))
    assert grouped(feed).last.offset == 0
    group = next_group(arrivals(feed)[1:], "main", HighWater({}), ALL)
    assert group is not None
    assert group.last.offset == 1


def test_the_first_is_not_asked_about_and_others_end_the_group(feed: Feed) -> None:
    for path in ("/a", "/b", "/c"):
        feed.add(page(path))
    feed.add(page("/other"), agent="other")
    asked: list[int] = []

    def accepts(arrival: Arrival) -> bool:
        asked.append(arrival.offset)
        return arrival.offset < 2

    group = next_group(arrivals(feed), "main", HighWater({}), ALL, accepts)
    assert group is not None
    assert group.last.offset == 1
    assert asked == [1, 2]


def package(sequence: int, epoch: int = 1) -> PackageEntry:
    return PackageEntry(
        "id", "main", Action.TEST, producer=PRODUCER, epoch=epoch, sequence=sequence
    )


def test_r27_what_was_numbered_before_is_a_repeat_also_of_an_earlier_epoch() -> None:
    high_water = HighWater({PRODUCER: (2, 10, 100)})
    assert not high_water.passes(package(10, epoch=2), 101)
    assert not high_water.passes(package(9, epoch=2), 101)
    assert not high_water.passes(package(11, epoch=1), 101)
    assert high_water.passes(package(1, epoch=3), 101)
    assert high_water.passes(package(10**9, epoch=4), 102), "another epoch has other numbers"


def test_r27_as_many_numbers_are_skipped_as_offsets_and_as_packages_that_wait() -> None:
    known = HighWater({PRODUCER: (1, 10, 100)})
    most = 10 + 50 + MOST_SKIPPED
    assert known.fork().passes(package(most), 150)
    with pytest.raises(ImpossibleSequence):
        known.fork().passes(package(most + 1), 150)
    assert known.fork().passes(package(most + 1), 50), "its place is from another log"
    assert HighWater({PRODUCER: (1, 10, None)}).passes(package(most + 1), 150)


def test_r27_only_who_wanted_the_removal_lets_the_next_number_be_any(feed: Feed) -> None:
    feed.add(page("/a"))
    feed.sequence += 2 * MOST_SKIPPED
    feed.add(page("/b"))
    removed = arrivals(feed)
    for wanted in (True, False):
        after = after_removal(HighWater({}), removed, wanted=wanted)
        assert not after.passes(package(1), 2), (
            "what was removed is not imported when it comes again"
        )
        written = GivenRows()
        after.store(written.connection, "main")
        place = None if wanted else 0
        assert written.row == ("main", [PRODUCER], [1], [1], [place]), "also after a restart"
        if wanted:
            assert after.passes(package(feed.sequence + 1), 2)
        else:
            with pytest.raises(ImpossibleSequence):
                after.passes(package(feed.sequence + 1), 2)


def test_r27_what_is_known_from_elsewhere_lowers_no_mark() -> None:
    high_water = HighWater({PRODUCER: (1, 10, 100)})
    high_water.note(PRODUCER, (1, 5), 50)
    assert not high_water.passes(package(10), 101)
    high_water.note(PRODUCER, (1, 20), 120)
    assert not high_water.passes(package(20), 121)
