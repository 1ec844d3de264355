"""The small parts of the journal: headers, partitions, URLs, the five topics."""

import uuid
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.messaging.api import LogEnd, Outgoing, TopicMissing, TopicSpec, partition_for
from packhorse.messaging.faults import topic_faults
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.messaging.open import UnknownJournal, open_journal
from packhorse.messaging.sql.headers import pack_headers, unpack_headers
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from tests.harness.clock import ManualClock


@given(st.dictionaries(st.text(), st.binary()))
def test_headers_come_back_as_they_were(headers: dict[str, bytes]) -> None:
    assert unpack_headers(pack_headers(headers)) == headers


@given(st.text(), st.integers(1, 64))
def test_a_key_has_one_partition(key: str, partitions: int) -> None:
    assert partition_for(key, partitions) == crc32(key.encode()) % partitions
    assert partition_for(None, partitions) == 0


@pytest.mark.parametrize("url", ["redis://host", "host:9092", "", "kafkas://host"])
def test_a_url_of_no_journal_is_refused_with_those_that_there_are(url: str) -> None:
    with pytest.raises(UnknownJournal, match="postgresql:// or kafka://"):
        open_journal(url, client_name="test")


def test_a_memory_journal_is_shared_by_name() -> None:
    shared = f"memory://{uuid.uuid4()}"
    one, two = (open_journal(shared, client_name=name) for name in "ab")
    other = open_journal("memory://other", client_name="c")
    one.create_topics([TopicSpec("t")])
    one.append("t", Outgoing(b"x"))
    assert two.bounds("t").next == 1
    assert other.check_topics([TopicSpec("t")]) != []


def test_a_partition_that_is_missing_is_named() -> None:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec("t", partitions=2)])
    with pytest.raises(TopicMissing, match="no partition 2"):
        journal.bounds("t", 2)
    with pytest.raises(TopicMissing, match="no partition 2"):
        journal.reader("t", LogEnd.OLDEST, partition=2)


def test_status_command_and_event_are_kept_as_long_as_packages() -> None:
    specs = {spec.name: spec for spec in standard_topics(Topics(), partitions=6)}
    package = specs.pop("aemdistribution_package")
    discovery = specs.pop("aemdistribution_discovery")
    assert package.partitions == specs["aemdistribution_status"].partitions == 1
    assert discovery.partitions == specs["aemdistribution_command"].partitions == 6
    assert {spec.retention_ms for spec in specs.values()} == {package.retention_ms}
    assert discovery.retention_ms == 3600_000


def test_all_faults_of_all_topics_are_named() -> None:
    wanted = [TopicSpec("a", 2), TopicSpec("b", retention_ms=-1), TopicSpec("c")]
    found = {"a": TopicSpec("a", 1, 5, 5), "b": TopicSpec("b", retention_ms=-1)}
    faults = topic_faults(wanted, found)
    assert [sentence.split()[1] for sentence in faults] == ["a", "a", "a", "c"]


def test_memory_retention_goes_by_the_logs_own_clock() -> None:
    clock = ManualClock()
    journal = MemoryJournal(MemoryLog(clock))
    journal.create_topics([TopicSpec("t", retention_ms=1000)])
    journal.append("t", Outgoing(b"old"))
    clock.advance(0.9)
    journal.append("t", Outgoing(b"young"))
    clock.advance(0.2)
    journal.enforce_retention()
    assert journal.bounds("t").oldest == 1
