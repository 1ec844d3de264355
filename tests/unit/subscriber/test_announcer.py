"""Who announces a subscriber, and when."""

import uuid
from typing import cast

import pytest

from packhorse.messaging.api import JournalUnavailable, Outgoing
from packhorse.messaging.memory import open_memory_journal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.metrics import SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS
from packhorse.wire.codec import decode_discovery
from packhorse.wire.messages import SubscriptionState
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.announce import announcer
from packhorse_services.subscriber.announce.announcer import Announcer, Identity
from packhorse_services.subscriber.announce.subscription_report import (
    UNKNOWN_HEAD,
    SubscriptionReport,
)
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.lease import Lease
from tests.harness.waiting import eventually

TOPICS = Topics.named("packhorse", {})
_LAGS = (SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS)


class HeldLease:
    """A lease that this worker has; it counts who asks."""

    def __init__(self) -> None:
        self.requested = 0

    def epoch(self) -> int:
        self.requested += 1
        return 1


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
        *(journal, TOPICS, Identity("sub", "one"), [report]), cast("Lease", HeldLease())
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


def lag_series() -> list[float]:
    return [one.value for metric in _LAGS for family in metric.collect() for one in family.samples]


@pytest.mark.parametrize("append", ["refused", "unanswered"])
def test_what_is_not_known_any_more_has_no_series(
    monkeypatch: pytest.MonkeyPatch, append: str
) -> None:
    """A lag that froze at 0 would say that all is well for as long as the journal is away."""
    for metric in _LAGS:
        metric.clear()  # other tests of this process have shown theirs
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


def refused(*_: object) -> None:
    """Do what SQL does that is away."""
    raise JournalUnavailable("it is away")


class Unanswered:
    """What Kafka gives that is away, without the time that it takes."""

    def __init__(self, *_: object) -> None:
        pass

    def result(self, _timeout_s: float) -> None:
        raise TimeoutError
