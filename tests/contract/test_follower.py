"""A follower of any journal: in order, from the position that its caller kept, or not at all."""

import itertools

import pytest

from packhorse import AnotherLog, Follower, RecordsMissed
from packhorse.messaging.api import Journal, TopicSpec
from tests.harness.journals import JournalBackend, append_all, create, create_topic

pytestmark = pytest.mark.timeout(300)


def first(follower: Follower, count: int) -> list[tuple[bytes, str]]:
    """Return the next records' values with their positions, and leave the journal."""
    return [(record.value, where) for record, where in itertools.islice(follower, count)]


def values(follower: Follower, count: int) -> list[bytes]:
    return [value for value, _ in first(follower, count)]


def test_it_goes_on_from_the_position_that_was_kept(
    journal_backend: JournalBackend, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"a", b"b", b"c"])
    url = journal_backend.url
    read = first(Follower(topic, journal_url=url), 2)
    assert [value for value, _ in read] == [b"a", b"b"]
    kept = read[-1][1]
    again = Follower(topic, journal_url=url, after=kept)
    assert values(again, 1) == [b"c"]
    append_all(journal, topic, [b"d"])
    assert values(again, 1) == [b"d"]  # a second iteration goes on
    assert again.position != kept
    assert values(Follower(topic, journal_url=url, after=read[0][1]), 3) == [b"b", b"c", b"d"]


def test_all_partitions_are_in_one_position(
    journal_backend: JournalBackend, journal: Journal
) -> None:
    topic = create(journal, partitions=3)
    keys = [f"key {number}" for number in range(12)]
    assert len({journal.partition_of(topic, key) for key in keys}) == 3
    for key in keys:
        append_all(journal, topic, [key.encode()], key=key)
    url, kept = journal_backend.url, None
    seen: list[bytes] = []
    while len(seen) < len(keys):  # a new follower for each few records
        some = first(Follower(topic, journal_url=url, after=kept), min(5, len(keys) - len(seen)))
        seen += [value for value, _ in some]
        kept = some[-1][1]
    assert sorted(seen) == sorted(key.encode() for key in keys)


def test_r2_a_log_that_has_forgotten_what_comes_next_says_so(
    journal_backend: JournalBackend, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"a", b"b", b"c", b"d"])
    url = journal_backend.url
    [(_, kept)] = first(Follower(topic, journal_url=url), 1)
    journal.truncate(topic, 1)
    assert values(Follower(topic, journal_url=url, after=kept), 1) == [b"b"]  # nothing is missed
    journal.truncate(topic, 3)
    with pytest.raises(RecordsMissed, match="begins at 3, but 1 was to be read next") as missed:
        next(iter(Follower(topic, journal_url=url, after=kept)))
    assert not isinstance(missed.value, AnotherLog)
    assert values(Follower(topic, journal_url=url, after=missed.value.position), 1) == [b"d"]


def test_r24_a_topic_that_was_created_anew_is_another_log(
    journal_backend: JournalBackend, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"a", b"b"])
    url = journal_backend.url
    [(_, kept)] = first(Follower(topic, journal_url=url), 1)
    reading = iter(Follower(topic, journal_url=url, after=kept))
    assert next(reading)[0].value == b"b"
    journal_backend.remove_topic(topic)
    create_topic(journal, TopicSpec(topic, 1, 3600_000, 1024 * 1024))
    append_all(journal, topic, [b"x", b"y", b"z"])
    with pytest.raises(AnotherLog, match="not the topic that was read before") as other:
        list(reading)  # Kafka tells it a few seconds later
    with pytest.raises(AnotherLog):
        next(iter(Follower(topic, journal_url=url, after=kept)))
    assert values(Follower(topic, journal_url=url, after=other.value.position), 1) == [b"x"]


def test_it_can_begin_with_what_comes(
    journal_backend: JournalBackend, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"old"])
    follower = Follower(topic, journal_url=journal_backend.url, start="next")
    kept = follower.begin()
    append_all(journal, topic, [b"new"])
    assert values(follower, 1) == [b"new"]
    assert values(Follower(topic, journal_url=journal_backend.url, after=kept), 1) == [b"new"]
