"""A machine that has no more threads for a moment leaves nobody waiting for ever."""

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from packhorse.db.pool import SharedPool
from packhorse.messaging.api import Outgoing, TopicMissing
from packhorse.messaging.kafka.appending import KafkaAppender, TopicShape
from packhorse.messaging.sql.appender import SqlAppender
from packhorse.runtime.threads import Threads
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.listeners import Listeners
from tests.harness.topology.observations import topology
from tests.harness.topology.scripted import ME

WAIT_S = 30
RECORD = Outgoing(b"", key="k")


def of_threads() -> Callable[[], bool]:
    threads = Threads("scarce", 1)
    return lambda: threads.submit(lambda: True).result(WAIT_S)


def of_a_journal_in_sql() -> Callable[[], bool]:
    writer: Any = SimpleNamespace(topics=lambda names: {})
    appender = SqlAppender(writer)
    return lambda: isinstance(appender.submit("none", RECORD).exception(WAIT_S), TopicMissing)


def of_a_journal_in_kafka() -> Callable[[], bool]:
    def shape(topic: str) -> TopicShape:
        raise TopicMissing(topic)

    link: Any = SimpleNamespace(broken_at=None)
    appender = KafkaAppender(lambda _: link, shape)
    return lambda: isinstance(appender.append("none", RECORD).exception(WAIT_S), TopicMissing)


def of_a_pool() -> Callable[[], bool]:
    """Its thread closes connections that nobody needs."""
    pool, closed = SharedPool("", "scarce-pool", idle_s=0), threading.Event()
    info = SimpleNamespace(transaction_status=TransactionStatus.IDLE)
    connection: Any = SimpleNamespace(info=info, commit=lambda: None, close=closed.set, closed=True)
    earlier = itertools.count()
    pool._connect = lambda: connection  # type: ignore[assignment]

    def borrow() -> bool:
        with pool.lend(0):
            closed.clear()
        return next(earlier) > 0 and closed.wait(WAIT_S)  # the first one has no such thread

    return borrow


def of_topology_listeners() -> Callable[[], bool]:
    listeners, heard = Listeners(), threading.Event()
    listeners.add(lambda _: heard.set())

    def report() -> bool:
        listeners.post(TopologyEvent(EventKind.INIT, None, topology(ME)))
        return heard.wait(WAIT_S)

    return report


@pytest.mark.parametrize(
    "part",
    [
        of_threads,
        of_a_journal_in_sql,
        of_a_journal_in_kafka,
        of_a_pool,
        of_topology_listeners,
    ],
)
def test_a_thread_that_can_not_be_started_is_tried_again(
    part: Callable[[], Callable[[], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    works, start, here = part(), threading.Thread.start, threading.get_ident()

    def refuse_once(thread: threading.Thread) -> None:
        if threading.get_ident() != here:  # another test's
            start(thread)
            return
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    with suppress(RuntimeError):
        works()
    assert threading.Thread.start is start
    assert works()
