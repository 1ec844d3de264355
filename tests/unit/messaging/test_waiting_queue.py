"""The SQL journal's appender and its queue: bounded, in order, and honest when it refuses."""

import threading
from collections.abc import Sequence

import pytest

from packhorse.messaging.api import AppendUnknown, NotAppended, Outgoing
from packhorse.messaging.sql.appender import SqlAppender
from packhorse.messaging.sql.catalogue import SqlTopic
from packhorse.messaging.sql.group import GroupWriter
from packhorse.messaging.sql.waiting import (
    GROUP_BYTES,
    GROUP_RECORDS,
    WAITING_BYTES,
    Waiting,
    WaitingQueue,
)


def _record(value: bytes = b"x") -> Waiting:
    return Waiting.of("topic", Outgoing(value))


def _put(queue: WaitingQueue, count: int, value: bytes = b"x") -> list[Waiting]:
    records = [_record(value) for _ in range(count)]
    for record in records:
        queue.put(record)
    return records


def test_a_group_is_what_waits_in_order() -> None:
    queue = WaitingQueue()
    records = _put(queue, 3)
    assert queue.take_group() == records


def test_r30_a_group_is_bounded_by_records_and_by_bytes() -> None:
    queue = WaitingQueue()
    _put(queue, GROUP_RECORDS + 1)
    assert len(queue.take_group() or []) == GROUP_RECORDS
    assert len(queue.take_group() or []) == 1
    megabyte = b"x" * 1024 * 1024
    _put(queue, 20, megabyte)
    assert len(queue.take_group() or []) * len(megabyte) <= GROUP_BYTES


def test_r30_more_than_may_wait_is_refused_at_once() -> None:
    queue = WaitingQueue()
    large = b"x" * (WAITING_BYTES // 4)
    _put(queue, 4, large)
    refused = _record()
    queue.put(refused)
    with pytest.raises(NotAppended, match="wait for"):
        refused.future.result(0)
    queue.take_group()
    taken = _record()
    queue.put(taken)
    assert not taken.future.done()


def test_a_caller_who_gave_up_before_its_turn_is_left_out() -> None:
    queue = WaitingQueue()
    first, second = _put(queue, 2)
    assert first.future.cancel()
    assert queue.take_group() == [second]
    assert not second.future.cancel()


def test_a_closed_queue_hands_out_what_waits_and_takes_no_more() -> None:
    queue = WaitingQueue()
    [waiting] = _put(queue, 1)
    queue.close()
    [late] = _put(queue, 1)
    assert isinstance(late.future.exception(0), NotAppended)
    assert queue.take_group() == [waiting]
    assert queue.take_group() is None


class AwayWriter(GroupWriter):
    """Fails its first group, once it may."""

    def __init__(self) -> None:
        self.asked, self.may_fail = threading.Event(), threading.Event()

    def topics(self, names: Sequence[str]) -> dict[str, SqlTopic]:
        self.asked.set()
        self.may_fail.wait(120)
        raise NotAppended("the database is away")


def test_r3_what_a_close_has_no_time_for_is_unknown() -> None:
    writer = AwayWriter()
    appender = SqlAppender(writer)
    under_way = appender.submit("topic", Outgoing(b"under way"))
    assert writer.asked.wait(120)
    waiting = appender.submit("topic", Outgoing(b"waiting"))
    appender.close(0)
    assert isinstance(under_way.exception(0), AppendUnknown)
    assert isinstance(waiting.exception(0), AppendUnknown)
    writer.may_fail.set()
    appender.close(120)


def test_what_no_longer_fails_with_a_group_is_put_when_its_failure_can_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = AwayWriter()
    appender = SqlAppender(writer)
    first = appender.submit("topic", Outgoing(b"first"))
    seen: list[bool] = []

    def taken_and_looked(queue: WaitingQueue) -> list[Waiting]:
        taken = take_all(queue)
        seen.append(first.done())
        return taken

    take_all = WaitingQueue.take_all
    monkeypatch.setattr(WaitingQueue, "take_all", taken_and_looked)
    writer.may_fail.set()
    appender.close(120)
    assert seen[0], "a record that is put now would overtake the first"
