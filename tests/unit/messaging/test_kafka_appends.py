"""Appends to Kafka whose topic is looked up while the connection breaks; without a broker."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

import pytest

from packhorse.messaging.api import Appended, NotAppended, Outgoing
from packhorse.messaging.kafka import appending
from packhorse.messaging.kafka.appending import KafkaAppender, TopicShape
from packhorse.messaging.kafka.link import Link

WAIT_S = 120


class WrittenLink:
    """Takes records; the test says when it breaks."""

    def __init__(self, on_stale: Callable[[str], None]) -> None:
        self.on_stale, self.broken_at = on_stale, cast("float | None", None)
        self.sent: list[bytes] = []

    def send(
        self, _topic: str, _partition: int, record: Outgoing, future: Future[Appended]
    ) -> None:
        self.sent.append(record.value)
        future.set_result(Appended(0, len(self.sent)))


class Site:
    """An appender whose lookups wait until they may go on."""

    def __init__(self) -> None:
        self.links: list[WrittenLink] = []
        self.may_look = threading.Event()
        self.appender = KafkaAppender(self._open, self._look_up)

    def _open(self, on_stale: Callable[[str], None]) -> Link:
        self.links.append(WrittenLink(on_stale))
        return cast("Link", self.links[-1])

    def _look_up(self, _topic: str) -> TopicShape:
        assert self.may_look.wait(WAIT_S)
        return TopicShape(1, None)

    def append(self, value: bytes) -> Future[Appended]:
        return self.appender.append("topic", Outgoing(value, key="k"))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(appending, "_PAUSE_SECONDS", 0.0)
    return Site()


def test_what_waits_for_its_topic_never_goes_over_a_later_link(site: Site) -> None:
    site.may_look.set()
    site.append(b"r1").result(WAIT_S)
    site.may_look.clear()
    [link] = site.links
    link.on_stale("topic")  # r2 was too large: the link says so before it gives up
    waiting = site.append(b"r3")
    link.broken_at = 0.0
    later = site.append(b"r4")
    site.may_look.set()
    for one in (waiting, later):
        with pytest.raises(NotAppended, match="append again"):
            one.result(WAIT_S)
    assert site.append(b"r3").result(WAIT_S) == Appended(0, 1)
    assert [one.sent for one in site.links] == [[b"r1"], [b"r3"]]


def test_a_link_that_broke_before_holds_up_no_lookup(site: Site) -> None:
    site.may_look.set()
    site.append(b"r1").result(WAIT_S)
    site.links[0].on_stale("topic")
    site.links[0].broken_at = 0.0
    assert site.append(b"r2").result(WAIT_S) == Appended(0, 1)


def test_nothing_is_looked_up_within_the_pause(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.may_look.set()
    site.append(b"r1").result(WAIT_S)
    site.links[0].on_stale("topic")
    monkeypatch.setattr(appending, "_PAUSE_SECONDS", float("inf"))
    site.links[0].broken_at = 0.0
    with pytest.raises(NotAppended, match="append again soon"):
        site.append(b"r2").result(WAIT_S)
