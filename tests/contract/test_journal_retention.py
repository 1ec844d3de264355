"""What every backend promises of retention: what it removes, and that it can be changed (R4)."""

import threading

from packhorse.messaging.api import Bounds, Journal
from tests.harness.journals import JournalOpener, append_all, create
from tests.harness.waiting import eventually


def test_r4_retention_removes_what_is_too_old_and_nothing_else(journal: Journal) -> None:
    brief, long = create(journal, retention_ms=1000), create(journal)
    append_all(journal, brief, [b"old"] * 5)
    append_all(journal, long, [b"kept"] * 5)
    eventually(lambda: _swept(journal, brief) == Bounds(5, 5), "retention")
    assert journal.bounds(long) == Bounds(0, 5)
    assert append_all(journal, brief, [b"new"])[0].offset == 5


def test_r4_a_retention_that_was_changed_holds_from_then_on(journal: Journal) -> None:
    name = create(journal, retention_ms=-1)
    append_all(journal, name, [b"old"] * 5)
    assert journal.retention_ms(name) == -1
    before = journal.identity(name)
    journal.retain(name, 1000)
    eventually(lambda: journal.retention_ms(name) == 1000, "the new retention")
    eventually(lambda: _swept(journal, name) == Bounds(5, 5), "retention")
    journal.retain(name, -1)
    eventually(lambda: journal.retention_ms(name) == -1, "the new retention")
    assert append_all(journal, name, [b"kept"])[0].offset == 5
    assert _swept(journal, name) == Bounds(5, 6)
    assert journal.identity(name) == before


def _swept(journal: Journal, topic: str) -> Bounds:
    journal.enforce_retention()
    return journal.bounds(topic)


def test_two_processes_enforce_retention_at_once(opener: JournalOpener) -> None:
    journal = opener.open()
    topic = create(journal, retention_ms=300)
    stop = threading.Event()
    failures: list[BaseException] = []

    def sweep(own: Journal) -> None:
        while not stop.is_set():
            try:
                own.enforce_retention()
            except Exception as error:
                failures.append(error)
                return

    sweepers = [threading.Thread(target=sweep, args=(opener.open(),)) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    for _ in range(20):
        append_all(journal, topic, [b"x" * 1000] * 20)
    eventually(lambda: journal.bounds(topic) == Bounds(400, 400), "retention")
    stop.set()
    for sweeper in sweepers:
        sweeper.join()
    assert failures == []
