"""Who follows the end of a log says that it can't, and says it too when it can again."""

import logging
from collections.abc import Callable

import pytest

from packhorse.messaging.api import Outgoing, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.runtime.lifecycle import WorkerComponent
from packhorse_services.publisher.live.agent_log import AgentLog
from packhorse_services.publisher.live.event_hub import Tail
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from tests.harness.clock import ManualClock
from tests.harness.publishing import AwayJournal
from tests.harness.waiting import eventually

TOPIC = "topic"


def feed(journal: AwayJournal, clock: ManualClock) -> WorkerComponent:
    return QueueFeed(journal, TOPIC, QueueCache("main", max_bytes=2**20), clock=clock)


def tail(journal: AwayJournal, clock: ManualClock) -> WorkerComponent:
    log = AgentLog(journal, TOPIC, lambda _: None, kind=EventType.STATUS)
    return Tail(log, log.recent.extend, clock)


@pytest.mark.parametrize(
    ("make", "what"), [(feed, "the queues' tail"), (tail, f"the end of {TOPIC}")]
)
def test_the_log_says_that_it_is_followed_again(
    make: Callable[[AwayJournal, ManualClock], WorkerComponent],
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, journal = ManualClock(), AwayJournal(MemoryJournal(MemoryLog()))
    journal.create_topics([TopicSpec(TOPIC)])
    journal.away = True
    told = [
        f"{what} can't be followed now: the journal is away",
        f"{what} is followed again, after 1 s",
    ]

    def is_told() -> bool:
        journal.append(TOPIC, Outgoing(b"")).result()  # or it polls for seconds
        return caplog.messages == told

    follower = make(journal, clock)
    with caplog.at_level(logging.INFO):
        follower.start()
        try:
            clock.until_waited_on()
            journal.away = False
            clock.advance(1)
            eventually(is_told)
        finally:
            follower.stop(120)
