"""The follower of a golden subscriber, on journals that lose, refuse and hold back."""

import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import Journal, JournalUnavailable, Outgoing, Reader, Record
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_discovery, encode_status
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import (
    CommandState,
    CommandStatusMessage,
    DiscoveryMessage,
    Status,
    StatusMessage,
)
from packhorse_services.subscriber.staging.follower import StagingFollower
from packhorse_services.subscriber.staging.staging import Staging, StagingVerdict
from tests.harness.clock import ManualClock
from tests.harness.feed import TOPICS
from tests.harness.staging import START, announcement, arrival, status
from tests.harness.waiting import eventually


@pytest.fixture(params=["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)])
def journal(request: pytest.FixtureRequest) -> Iterator[Journal]:
    """Each journal in turn, with topics of its own."""
    if request.param == "memory":
        url = f"memory://{uuid.uuid4()}"
    elif request.param == "sql":
        url = request.getfixturevalue("databases").new("journal")
    else:
        url = request.getfixturevalue("kafka").url
    opened = open_journal(url, client_name="tests")
    opened.create_topics(standard_topics(TOPICS))
    yield opened
    opened.close()


def fresh_journal() -> Journal:
    opened = open_journal(f"memory://{uuid.uuid4()}", client_name="tests")
    opened.create_topics(standard_topics(TOPICS))
    return opened


@contextmanager
def following(
    journal: Any, golden: str = "golden", clock: Clock | None = None
) -> Iterator[Staging]:
    staging = Staging(golden)
    follower = StagingFollower(journal, TOPICS, staging, clock)
    follower.start()
    try:
        yield staging
        assert follower.failure() is None
    finally:
        follower.stop(60)


def report(journal: Journal, *messages: StatusMessage | bytes) -> None:
    for message in messages:
        encoded = encode_status(message if isinstance(message, StatusMessage) else status(0, *ONE))
        value = message if isinstance(message, bytes) else encoded.value
        journal.append(TOPICS.status, Outgoing(value, encoded.headers)).result(120)


ONE = (Status.IMPORTED,)


def announce(journal: Journal, message: DiscoveryMessage) -> None:
    encoded = encode_discovery(message)
    record = Outgoing(encoded.value, encoded.headers, message.subscriber)
    journal.append(TOPICS.discovery, record).result(120)


def becomes(staging: Staging, offset: int, verdict: StagingVerdict, time_ms: int = 2**60) -> None:
    eventually(
        lambda: staging.ruling(START, arrival(offset, time_ms=time_ms)).verdict is verdict,
        f"{offset} becomes {verdict}",
    )


def becomes_forgotten(staging: Staging, offset: int) -> None:
    eventually(
        lambda: "forgotten" in staging.ruling(START, arrival(offset, time_ms=1)).reason,
        f"what became of {offset} is not known any more",
    )


def newest_status(journal: Journal) -> Record:
    newest = journal.bounds(TOPICS.status).next - 1
    with journal.reader(TOPICS.status, newest, partition=0) as reader:
        [record] = reader.poll(10.0)
    return record


def test_statuses_and_silence_are_read_from_each_journal(journal: Journal) -> None:
    golden = f"golden-{uuid.uuid4().hex}"  # Kafka's topics are shared by all tests
    reported = [
        StatusMessage(golden, "main", "journal", 0, Status.IMPORTED, "p0"),
        StatusMessage(golden, "main", "journal", 1, Status.REMOVED_FAILED, "p1"),
        StatusMessage(f"not-{golden}", "main", "journal", 2, Status.IMPORTED, "p2"),
    ]
    report(journal, *reported[:1])
    with following(journal, golden) as staging:
        heard = threading.Event()
        staging.listen(heard.set)
        becomes(staging, 0, StagingVerdict.ACCEPT)
        report(journal, *reported[1:])
        becomes(staging, 1, StagingVerdict.SKIP)
        becomes(staging, 2, StagingVerdict.WAIT)
        said = announcement(2)
        announce(journal, DiscoveryMessage(f"not-{golden}", said.states, editable=True))
        heard.clear()
        announce(journal, DiscoveryMessage(golden, said.states, editable=True))
        assert heard.wait(120)
        becomes(staging, 2, StagingVerdict.ACCEPT)


def test_an_unreadable_status_ends_the_proof_by_silence_for_what_is_older() -> None:
    journal = fresh_journal()
    report(journal, status(0, Status.IMPORTED), b"golden \xff\xff\xff")
    announce(journal, announcement(5))
    with following(journal) as staging:
        becomes(staging, 0, StagingVerdict.ACCEPT)
        becomes(staging, 1, StagingVerdict.ACCEPT)
        becomes_forgotten(staging, 1)
        unreadable = newest_status(journal).time_ms
        assert "forgotten" in staging.ruling(START, arrival(1, time_ms=unreadable)).reason


def test_what_became_of_a_command_leaves_the_proof_by_silence_as_it_is() -> None:
    journal = fresh_journal()
    report(journal, status(0, Status.IMPORTED))
    command = encode_command_status(
        CommandStatusMessage("c1", "golden", "main", CommandState.APPLIED)
    )
    journal.append(TOPICS.status, Outgoing(command.value, command.headers)).result(120)
    report(journal, status(2, Status.IMPORTED))
    announce(journal, announcement(5))
    with following(journal) as staging:
        becomes(staging, 2, StagingVerdict.ACCEPT)  # what stands behind the command's is read
        becomes(staging, 1, StagingVerdict.ACCEPT, time_ms=1)


def test_statuses_that_have_left_the_topic_prove_nothing() -> None:
    journal = fresh_journal()
    report(journal, status(0, Status.REMOVED_FAILED), status(1, Status.IMPORTED))
    journal.truncate(TOPICS.status, 1)
    announce(journal, announcement(5))
    with following(journal) as staging:
        becomes(staging, 1, StagingVerdict.ACCEPT)
        becomes_forgotten(staging, 0)


class Held:
    """A journal whose status readers fail, or wait, as a test wants it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.open, self.waiting, self.failed = (threading.Event() for _ in range(3))
        self.failing = False
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def reader(self, topic: str, *arguments: Any, **options: Any) -> Reader:
        reader = self._journal.reader(topic, *arguments, **options)
        if topic != TOPICS.status:
            return reader
        poll = reader.poll

        def held_poll(timeout: float, **limits: int) -> Sequence[Record]:
            if not self.open.is_set():
                self.waiting.set()
                self.open.wait(120)
            if self.failing:
                self.failed.set()
                raise JournalUnavailable("away")
            return poll(timeout, **limits)

        reader.poll = held_poll  # type: ignore[method-assign]
        return reader


@pytest.mark.parametrize("oldest", [4, 6])
def test_a_follower_that_the_topic_has_overtaken_reads_what_is_left(oldest: int) -> None:
    held = Held(fresh_journal())
    with following(held) as staging:
        report(held._journal, status(0, Status.IMPORTED))
        becomes(staging, 0, StagingVerdict.ACCEPT)
        held.open.clear()
        assert held.waiting.wait(120)
        report(held._journal, *(status(n, Status.IMPORTED) for n in range(1, 6)))
        held._journal.truncate(TOPICS.status, oldest)
        announce(held._journal, announcement(5))
        held.open.set()
        becomes_forgotten(staging, oldest - 1)
        becomes(staging, 0, StagingVerdict.ACCEPT)  # it was known before
        for offset in range(oldest, 6):
            becomes(staging, offset, StagingVerdict.ACCEPT)


def test_a_subscription_that_asks_later_has_all_statuses_read_again() -> None:
    journal = fresh_journal()
    report(journal, status(0, Status.IMPORTED, publisher_agent="late"), status(0, *ONE))
    with following(journal) as staging:
        becomes(staging, 0, StagingVerdict.ACCEPT)
        late = replace(START, agent="late")
        eventually(
            lambda: staging.ruling(late, arrival(0)).verdict is StagingVerdict.ACCEPT, "read again"
        )


def test_another_status_log_is_read_from_its_beginning() -> None:
    held = Held(fresh_journal())
    with following(held) as staging:
        report(held._journal, status(0, Status.IMPORTED), status(1, Status.IMPORTED))
        becomes(staging, 1, StagingVerdict.ACCEPT)
        held.failing = True
        assert held.failed.wait(120)
        held._journal = fresh_journal()
        report(held._journal, status(1, Status.IMPORTED), status(2, Status.IMPORTED))
        report(held._journal, status(4, Status.IMPORTED))
        held._journal.truncate(TOPICS.status, 1)
        announce(held._journal, announcement(5))
        held.failing = False
        becomes(staging, 2, StagingVerdict.ACCEPT)
        becomes(staging, 4, StagingVerdict.ACCEPT)
        becomes_forgotten(staging, 3)


def test_a_follower_outlives_an_outage() -> None:
    held = Held(fresh_journal())
    with following(held) as staging:
        report(held._journal, status(0, Status.IMPORTED))
        becomes(staging, 0, StagingVerdict.ACCEPT)
        held.failing = True
        report(held._journal, status(1, Status.REMOVED))
        assert held.failed.wait(120)
        held.failing = False
        becomes(staging, 1, StagingVerdict.SKIP)


def test_an_announcement_counts_only_once_the_statuses_before_it_are_read() -> None:
    held = Held(fresh_journal())
    with following(held) as staging:
        becomes(staging, 0, StagingVerdict.WAIT)
        eventually(lambda: "announced" in staging.ruling(START, arrival(0)).reason, "read")
        held.open.clear()
        assert held.waiting.wait(120)
        report(held._journal, status(0, Status.REMOVED_FAILED))
        announce(held._journal, announcement(0))
        held.open.set()
        seen = set()
        eventually(
            lambda: (
                seen.add(staging.ruling(START, arrival(0)).verdict) or StagingVerdict.SKIP in seen
            ),
            "skipped",
        )
        assert seen <= {StagingVerdict.WAIT, StagingVerdict.SKIP}


def test_only_what_was_announced_before_the_start_is_old() -> None:
    """How far this machine's clock is from the broker's is no silence of the golden one."""
    journal = fresh_journal()
    announce(journal, announcement(-1))
    tomorrow = ManualClock(wall_ms=SystemClock().wall_ms() + 86_400_000)
    with following(journal, clock=tomorrow) as staging:

        def reason() -> str:
            return staging.ruling(START, arrival(0)).reason

        silent = re.compile(r"golden has been silent for 864\d\d s$")
        eventually(lambda: silent.search(reason()), "silence")
        announce(journal, announcement(-1))
        eventually(lambda: reason() == "waits for golden to import offset 0", "it is back")


def test_nothing_is_read_before_a_subscription_asks() -> None:
    held = Held(fresh_journal())
    held.open.clear()
    with following(held) as staging:
        assert not held.waiting.wait(0.5)
        staging.ruling(START, arrival(0))
        assert held.waiting.wait(120)
        held.open.set()
