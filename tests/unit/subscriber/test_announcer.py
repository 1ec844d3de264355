"""Who announces a subscriber, and when."""

import threading
import uuid
from typing import cast

import pytest

from packhorse.messaging.api import JournalUnavailable, Outgoing
from packhorse.messaging.memory import open_memory_journal
from packhorse.messaging.topics import standard_topics
from packhorse.packages.path_filter import PathFilter
from packhorse.runtime.metrics import SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS
from packhorse.runtime.tracing import TRACEPARENT
from packhorse.wire.codec import decode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriptionState
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.announce import announcer
from packhorse_services.subscriber.announce.announcer import Announcer, Identity
from packhorse_services.subscriber.announce.subscription_report import (
    UNKNOWN_HEAD,
    SubscriptionReport,
)
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.lease import Lease
from tests.harness.clock import ManualClock
from tests.harness.waiting import eventually

TOPICS = Topics.named("packhorse", {})
_LAGS = (SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS)


@pytest.fixture(autouse=True)
def no_lag_of_other_tests() -> None:
    for metric in _LAGS:
        metric.clear()


class HeldLease:
    """A lease that this worker has until it is lost; it counts who asks."""

    def __init__(self) -> None:
        self.requested, self.lost = 0, False

    def epoch(self) -> int | None:
        self.requested += 1
        return None if self.lost else 1


class NotedWaits(ManualClock):
    """A clock on which no time passes; it notes each wait, and whether anything ended it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[float, bool]] = []

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append((seconds, event.is_set()))
        return event.is_set()


def test_r16_a_subscription_that_has_not_found_its_position_is_not_announced() -> None:
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    placed, late = SubscriptionReport("main"), SubscriptionReport("other")
    placed.healthy(SubscriptionState.IDLE, mark=Mark(3, "a"))
    lease = HeldLease()
    component = Announcer(
        *(journal, TOPICS, Identity("sub", "one", announce_s=0.01), [placed, late]),
        cast("Lease", lease),
    )
    component.start()
    try:
        eventually(lambda: lease.requested > 2, what="it had a reason to announce")
        assert journal.bounds(TOPICS.discovery).next == 0
        late.healthy(SubscriptionState.IDLE, mark=Mark(7, "b"))
        eventually(lambda: journal.bounds(TOPICS.discovery).next > 0, what="it announces")
    finally:
        component.stop(60)
    first = journal.read_at(TOPICS.discovery, 0)
    assert first is not None
    reported = decode_discovery(first.headers, first.value)
    assert [state.offset for state in reported.states] == [3, 7]


def test_r16_what_somebody_waits_for_is_announced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "_LEAST_GAP_S", 600.0)
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    report = SubscriptionReport("main")
    report.healthy(SubscriptionState.IDLE, mark=Mark(0, "a"))
    component = Announcer(
        *(journal, TOPICS, Identity("sub", "one", announce_s=900.0), [report]),
        cast("Lease", HeldLease()),
    )
    component.start()
    try:
        for number in range(1, 4):
            component.kick(awaited=True)
            eventually(
                lambda number=number: journal.bounds(TOPICS.discovery).next >= number,
                what="it is announced",
            )
    finally:
        component.stop(60)


def test_an_announcement_says_who_announces_what() -> None:
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    report, clock = SubscriptionReport("main"), ManualClock()
    taken = PathFilter(("/a",), ("/a/b",), (("/a", "/c"),), ("secret*",))
    identity = Identity("sub", "one", True, 3, "http://sub", path_filter=taken)
    lease = cast("Lease", HeldLease())
    Announcer(journal, TOPICS, identity, [report], lease, clock).announce()
    record = journal.read_at(TOPICS.discovery, 0)
    assert record is not None
    assert record.key == "sub"
    assert record.headers[TRACEPARENT], "it is in a trace"
    assert decode_discovery(record.headers, record.value) == DiscoveryMessage(
        "sub",
        (report.state,),
        editable=True,
        max_retries=3,
        endpoint="http://sub",
        announced_ms=clock.wall_ms(),
        subscriber_instance="one",
        include=("/a",),
        exclude=("/a/b",),
        map_paths=(("/a", "/c"),),
        exclude_properties=("secret*",),
    )


def test_r16_what_nobody_waits_for_is_announced_a_few_times_a_second() -> None:
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    report, clock = SubscriptionReport("main"), NotedWaits()
    report.healthy(SubscriptionState.IDLE, mark=Mark(0, "a"))
    identity, lease = Identity("sub", "one"), cast("Lease", HeldLease())
    component = Announcer(journal, TOPICS, identity, [report], lease, clock)
    gap = [(announcer._HURRIED_GAP_S, False), (announcer._LEAST_GAP_S, False)]
    for hurried in (False, True):
        component.kick(awaited=hurried)
        component._round()
    assert clock.waits == [*gap, *gap], "what was awaited is announced, and hurries nothing more"


def lag_series() -> list[float]:
    return [one.value for metric in _LAGS for family in metric.collect() for one in family.samples]


@pytest.mark.parametrize("append", ["refused", "unanswered"])
def test_what_is_not_known_any_more_has_no_series(
    monkeypatch: pytest.MonkeyPatch, append: str
) -> None:
    """A lag that froze at 0 would say that all is well for as long as the journal is away."""
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    report = SubscriptionReport("main")
    report.healthy(SubscriptionState.IDLE, mark=Mark(-1, ""), head_time_ms=0)
    component = Announcer(
        *(journal, TOPICS, Identity("sub", "one", announce_s=0.01), [report]),
        cast("Lease", HeldLease()),
    )
    component.start()
    try:
        eventually(lambda: lag_series() == [0, 0], what="nothing is behind")
        report.healthy(SubscriptionState.STOPPED, head_time_ms=UNKNOWN_HEAD)
        journal.append(TOPICS.package, Outgoing(b"", {})).result(10)
        eventually(lambda: lag_series() == [1], what="the age of what waits is not known")
        monkeypatch.setattr(journal, "append", refused if append == "refused" else Unanswered)
        eventually(lambda: lag_series() == [], what="nothing is known")
    finally:
        component.stop(60)


def test_who_has_lost_the_lease_shows_no_lag() -> None:
    journal = open_memory_journal(f"memory://{uuid.uuid4()}")
    journal.create_topics(standard_topics(TOPICS))
    report, lease = SubscriptionReport("main"), HeldLease()
    report.healthy(SubscriptionState.IDLE, mark=Mark(-1, ""), head_time_ms=0)
    identity = Identity("sub", "one")
    component = Announcer(
        *(journal, TOPICS, identity, [report]), cast("Lease", lease), NotedWaits()
    )
    component._round()
    assert lag_series() != []
    lease.lost = True
    component._round()
    assert lag_series() == []


def refused(*_: object) -> None:
    """Do what SQL does that is away."""
    raise JournalUnavailable("it is away")


class Unanswered:
    """What Kafka gives that is away, without the time that it takes."""

    def __init__(self, *_: object) -> None:
        pass

    def result(self, _timeout_s: float) -> None:
        raise TimeoutError
