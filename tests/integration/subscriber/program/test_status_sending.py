"""When statuses are sent, all of them, and who hears of it (R9, R11)."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.messaging.api import JournalUnavailable
from packhorse.runtime.tracing import TRACEPARENT
from packhorse.wire.messages import Status
from packhorse_services.subscriber.announce import statuses
from packhorse_services.subscriber.announce.announcer import Identity
from packhorse_services.subscriber.announce.statuses import (
    Decision,
    StatusSender,
    record_statuses,
)
from packhorse_services.subscriber.announce.subscription_report import Settled
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position
from tests.harness.feed import TOPICS, Feed


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.position "
            "(publisher_agent, journal_id, epoch, log_offset, package_id, started_offset) "
            "VALUES ('main', 'log', 1, 4, 'p', -1)"
        )
        decisions = [Decision(Mark(offset, "p"), Status.REMOVED) for offset in range(5)]
        record_statuses(connection, "sub", Position("main", "log", 1, Mark(4, "p")), decisions)
        yield connection


class Sending:
    """A sender that a test calls itself."""

    def __init__(self, feed: Feed, url: str) -> None:
        self.may_send, self.heard = True, list[tuple[dict[str, Settled], bool]]()
        self.connections: list[Connection] = []
        self._url = url
        self.sender = StatusSender(
            *(self._connect, feed.journal, TOPICS.status, Identity("sub", "one")),
            may_send=lambda: self.may_send,
            on_settled=self._hear,
        )

    def _connect(self) -> Connection:
        self.connections.append(connect(self._url, "tests", autocommit=True))
        return self.connections[-1]

    def _hear(self, settled: Mapping[str, Settled], awaited: bool) -> None:
        self.heard.append((dict(settled), awaited))


SETTLED = {"main": Settled("log", 1, 4)}


@pytest.fixture
def sending(feed: Feed, database_url: str) -> Iterator[Sending]:
    made = Sending(feed, database_url)
    yield made
    made.sender.stop(60)


@pytest.mark.usefixtures("connection")
def test_all_that_waits_is_sent_at_once_in_order(
    feed: Feed, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "_BATCH", 2)
    sending.sender.send()
    assert [status.offset for status in feed.statuses()] == [0, 1, 2, 3, 4]
    first = feed.journal.read_at(TOPICS.status, 0)
    assert first is not None
    assert first.headers[TRACEPARENT], "it is in a trace"


@pytest.mark.usefixtures("connection")
def test_r11_only_the_worker_with_the_lease_sends(feed: Feed, sending: Sending) -> None:
    sending.may_send = False
    sending.sender.send()
    assert feed.statuses() == []


@pytest.mark.usefixtures("connection")
def test_r9_what_the_journal_has_not_taken_is_sent_again(
    feed: Feed, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: Future[Any] = Future()
    lost.set_exception(JournalUnavailable("away"))
    with monkeypatch.context() as patched:
        patched.setattr(feed.journal, "append", lambda *_: lost)
        with pytest.raises(JournalUnavailable):
            sending.sender.send()
    sending.sender.send()
    assert [status.offset for status in feed.statuses()] == [0, 1, 2, 3, 4]


def test_a_connection_that_was_lost_is_opened_again(
    feed: Feed, sending: Sending, connection: Connection
) -> None:
    sending.sender.send()
    sending.connections[0].close()
    more = [Decision(Mark(5, "p"), Status.REMOVED)]
    record_statuses(connection, "sub", Position("main", "log", 1, Mark(5, "p")), more)
    sending.sender.send()
    assert [status.offset for status in feed.statuses()] == [0, 1, 2, 3, 4, 5]
    sending.sender.stop(60)
    assert [one.closed for one in sending.connections] == [True, True]


@pytest.mark.usefixtures("connection")
def test_what_is_to_be_sent_anew_is_not_settled(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as reset:
        reset.setattr(statuses, "_mark_sent", lambda *_: False)
        sending.sender.kick()
        sending.sender._round()
    sending.sender._round()
    assert sending.heard == [({}, False), (SETTLED, False)]


@pytest.mark.usefixtures("connection")
def test_who_announces_hears_of_what_moved_and_of_what_was_asked_for(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = sending.sender
    sender._round()
    sender._round()
    assert sending.heard == [(SETTLED, False)], "nothing moved, and nobody asked"
    for awaited in (False, True):
        sender.kick(awaited=awaited)
        sender._round()
        sender._round()
    assert sending.heard[1:] == [(SETTLED, False), (SETTLED, True)]
    monkeypatch.setattr(sender, "send", away)
    sender.kick()
    with pytest.raises(JournalUnavailable):
        sender._round()
    assert sending.heard[3:] == [(SETTLED, False)], "what is asked for is announced all the same"


def away() -> None:
    raise JournalUnavailable("away")
