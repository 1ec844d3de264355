"""R26: the search for packages of ours reports all the while that it goes on."""

from packhorse.messaging.api import LogEnd, Outgoing, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse_services.publisher.outbox import journal_search


def test_r26_a_long_search_shows_that_it_lives() -> None:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec("package")])
    for _ in range(7):
        journal.append("package", Outgoing(b"of somebody else")).result()
    beats: list[None] = []
    found = journal_search.search(
        journal,
        "package",
        LogEnd.OLDEST,
        journal_search.Sought("us"),
        beat=lambda: beats.append(None),
        beat_s=0.0,
    )
    assert (len(beats), found.end) == (7, 7)
