"""Eight processes' worth of writers and one tailing reader: nothing is missed (R1)."""

from collections.abc import Callable

from packhorse.messaging.api import Journal, LogEnd, Outgoing, Since
from tests.harness.gaps import race
from tests.harness.journals import DEADLINE_S, JournalOpener, append_all, create, polled, read_until

WRITERS = 8


def _writer(journal: Journal, topic: str) -> Callable[[], int]:
    return lambda: journal.append(topic, Outgoing(b"x" * 100)).result(DEADLINE_S).offset


def test_r1_a_tailing_reader_misses_no_record_of_eight_writers(opener: JournalOpener) -> None:
    journal = opener.open()
    topic = create(journal)
    writers = [_writer(opener.open(), topic) for _ in range(WRITERS)]
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        result = race(writers, lambda _: [record.offset for record in polled(reader, 0.2)])
    assert result.missed == set()
    assert result.in_order


def test_r1_every_reader_sees_the_same_log(opener: JournalOpener) -> None:
    journal = opener.open()
    topic = create(journal)
    for _ in range(3):
        append_all(opener.open(), topic, [b"a", b"b", b"c"])
    logs = []
    for start in (LogEnd.OLDEST, Since(0), journal.bounds(topic).oldest):
        with opener.open().reader(topic, start) as reader:
            logs.append([(record.offset, record.value) for record in read_until(reader, 9)])
    assert logs[0] == logs[1] == logs[2]
    assert [value for _, value in logs[0]] == [b"a", b"b", b"c"] * 3
