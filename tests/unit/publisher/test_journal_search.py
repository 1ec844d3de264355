"""R26, R30: what the journal says of our packages, whatever else is in it, and which log it is."""

from types import SimpleNamespace

import pytest

from packhorse.messaging.api import LogEnd, Outgoing, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.messaging.numbered import Number, Numbered
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import PACKAGE_ID_HEADER, encode_package
from packhorse_services.publisher.outbox import journal_search
from packhorse_services.publisher.outbox.journal_search import Findings, LogWatch, Sought, search
from tests.harness.clock import ManualClock


@pytest.fixture
def journal() -> MemoryJournal:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec("package")])
    return journal


def append(
    journal: MemoryJournal,
    package_id: str,
    *,
    author: str = "us",
    number: tuple[int, int] = (1, 1),
    source: Number | None = None,
) -> None:
    epoch, sequence = number
    entry = PackageEntry(
        package_id, "main", Action.TEST, producer=author, epoch=epoch, sequence=sequence
    )
    encoded = encode_package(PackageMessage(entry))
    record = Outgoing(encoded.value, encoded.headers)
    if source is not None:
        numbers = source.producer, source.epoch, source.sequence
        record = Numbered(*numbers, record).outgoing(None)
    journal.append("package", record).result()


def found(
    journal: MemoryJournal, *wanted: str, start: int | LogEnd = LogEnd.OLDEST, author: str = "us"
) -> Findings:
    sought = Sought(author, frozenset(wanted))
    return search(journal, "package", start, sought, beat=lambda: None)


def test_r26_a_long_search_shows_that_it_lives(journal: MemoryJournal) -> None:
    for _ in range(7):
        journal.append("package", Outgoing(b"of somebody else")).result()
    beats: list[None] = []
    findings = search(
        journal,
        "package",
        LogEnd.OLDEST,
        Sought("us"),
        beat=lambda: beats.append(None),
        beat_s=0.0,
    )
    assert (len(beats), findings.end) == (7, 7)


def test_r5_a_package_that_is_there_twice_is_where_it_is_first(journal: MemoryJournal) -> None:
    for package_id in ("a", "b", "a"):
        append(journal, package_id)
    findings = found(journal, "a", "b")
    assert findings.offsets == {"a": 0, "b": 1}
    append(journal, "b")
    append(journal, "c")
    places = findings.grown(lambda start: found(journal, "a", "b", "c", start=start))
    assert (places, findings.end) == ({"a": 0, "b": 1, "c": 4}, 5)


def test_r26_the_highest_number_is_the_authors_own(journal: MemoryJournal) -> None:
    for author, number in (("us", (2, 3)), ("us", (1, 9)), ("them", (5, 1))):
        append(journal, "a", author=author, number=number)
    assert found(journal).highest == (2, 3)
    assert found(journal, author="them").highest == (5, 1)


def test_r26_a_log_that_does_not_reach_to_the_start_is_searched_from_its_oldest(
    journal: MemoryJournal,
) -> None:
    for package_id in ("a", "b", "c"):
        append(journal, package_id)
    assert found(journal, "a", start=9).offsets == {"a": 0}, "it was brought back to a backup"
    journal.truncate("package", 1)
    assert found(journal, "a", "b", start=0).offsets == {"b": 1}, "it has forgotten the rest"


def test_r26_of_a_source_the_highest_counts_and_the_last_one_is_last(
    journal: MemoryJournal,
) -> None:
    one, two = "main/one/caller", "main/two/caller"
    for source in (Number(one, 2, 1), Number(two, 1, 1), Number(one, 1, 5), Number(one, 1, 3)):
        append(journal, "a", source=source)
    assert list(found(journal).sources.values()) == [Number(two, 1, 1), Number(one, 2, 5)]


def test_r30_what_is_nothing_of_ours_disturbs_nobody(journal: MemoryJournal) -> None:
    for name in ("plain", "main/one"):
        append(journal, "a", source=Number(name, 1, 1))
    journal.append("package", Outgoing(b"", {PACKAGE_ID_HEADER: b"\xff"})).result()
    findings = found(journal, "a")
    assert (findings.offsets, findings.sources, findings.end) == ({"a": 0}, {}, 3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(journal_search, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_r26_offsets_that_do_not_grow_have_the_log_asked_who_it_is(
    journal: MemoryJournal, clock: ManualClock
) -> None:
    watch = LogWatch(journal, "package")
    assert watch.is_suspicious(5, 6), "the first ones"
    assert not watch.is_suspicious(7, 8)
    assert watch.is_suspicious(8, 9)
    assert watch.is_suspicious(0, 3)
    assert not watch.is_suspicious(4, 5)


def test_r26_the_log_is_asked_every_few_seconds_however_its_offsets_grow(
    journal: MemoryJournal, clock: ManualClock
) -> None:
    watch = LogWatch(journal, "package")
    assert watch.is_suspicious(0, 0)
    clock.advance(4.0)
    assert not watch.is_suspicious(1, 1)
    clock.advance(1.0)
    assert watch.is_suspicious(2, 2)
    assert not watch.is_suspicious(3, 3)
