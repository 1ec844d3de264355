"""What can't be imported is a failed attempt with a reason; none is skipped (R14, R30)."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.errors import ProgramLimitExceeded

from packhorse.blobs.api import BlobMissing, BlobStoreUnavailable
from packhorse.content.node import Node
from packhorse.wire.messages import (
    Action,
    CommandState,
    DesiredState,
    PackageMessage,
    Status,
    StatusMessage,
    SubscriptionState,
)
from packhorse.wire.package_codec import encode_package
from packhorse_services.subscriber.commands import control
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from tests.harness.commands import following, reported
from tests.harness.digests import digested
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, assert_is_the_fold, failed, given_up
from tests.integration.subscriber.conftest import Workers


class BlobDouble:
    """A blob store of which reading fails so many times."""

    def __init__(self, blobs: Any, error: Exception, times: int) -> None:
        self._blobs, self._error, self.left = blobs, error, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def get(self, key: str, **more: Any) -> Iterator[bytes]:
        self.left -= 1
        if self.left >= 0:
            raise self._error
        chunks: Iterator[bytes] = self._blobs.get(key, **more)
        yield from chunks


def by_reference(feed: Feed) -> int:
    noise = random.Random(2)
    return feed.add(*(page(f"/big/{n}", text=noise.randbytes(50_000).hex()) for n in range(25)))


def test_a_blob_that_is_late_costs_the_package_nothing(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    by_reference(feed)
    worker.blobs = BlobDouble(feed.blobs, BlobMissing("not yet"), 3)  # type: ignore[assignment]
    worker.run()
    assert failed(worker, feed) == []
    assert_is_the_fold(worker.url, feed)


def test_r14_the_reason_is_announced_from_the_first_failure_on(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(policy=RetryPolicy(-1, 60.0, 60.0))
    by_reference(feed)
    worker.blobs = BlobDouble(feed.blobs, BlobMissing("not there"), 99)  # type: ignore[assignment]
    worker.step_until_reported("not there")
    state = worker.report.state
    assert (state.retries, state.state) == (0, SubscriptionState.RUNNING), (
        "no attempt is counted yet"
    )
    assert state.next_attempt_ms > 0


def test_r14_a_blob_that_stays_away_is_a_failed_attempt(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(1, 0.0, 0.0))
    bad = by_reference(feed)
    worker.blobs = BlobDouble(feed.blobs, BlobMissing("gone"), 99)  # type: ignore[assignment]
    worker.run()
    assert failed(worker, feed) == [(bad, 2)]


def test_r10_a_blob_store_that_is_away_is_waited_for(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    by_reference(feed)
    away = BlobDouble(feed.blobs, BlobStoreUnavailable("away"), 8)
    worker.blobs = away  # type: ignore[assignment]
    worker.run()
    assert failed(worker, feed) == []
    assert_is_the_fold(worker.url, feed)


@pytest.fixture
def strict(workers: Workers) -> Worker:
    return workers(policy=RetryPolicy(0, 0.0, 0.0), roots=["/"])


def test_r14_an_unknown_package_type_fails(feed: Feed, strict: Worker) -> None:
    message = feed.message(Action.ADD, ["/a"], [], [page("/a")])
    offset = feed.append(replace(message, package_type="zip/9"))
    assert "zip/9" in given_up(feed, strict, offset)


def test_r14_a_corrupt_payload_fails(feed: Feed, strict: Worker) -> None:
    encoded = encode_package(feed.message(Action.ADD, ["/a"], [], [page("/a")]))
    offset = feed.raw(encoded.value[:-7] + b"garbage", dict(encoded.headers))
    assert given_up(feed, strict, offset)


def test_r14_undecodable_bytes_fail(feed: Feed, strict: Worker) -> None:
    encoded = encode_package(feed.message(Action.ADD, ["/a"], [], [page("/a")]))
    offset = feed.raw(b"\xff" * 40, dict(encoded.headers))
    assert "PackageMessage" in given_up(feed, strict, offset)


def test_r14_headers_that_name_another_package_fail(feed: Feed, strict: Worker) -> None:
    encoded = encode_package(feed.message(Action.ADD, ["/a"], [], [page("/a")]))
    headers = digested({**encoded.headers, "package-id": b"forged"}, encoded.value)
    offset = feed.raw(encoded.value, headers)
    assert "another package" in given_up(feed, strict, offset)


def test_r30_an_id_that_postgres_cannot_hold_does_not_stop_the_subscription(
    feed: Feed, strict: Worker
) -> None:
    encoded = encode_package(feed.message(Action.ADD, ["/a"], [], [page("/a")]))
    headers = {**encoded.headers, "package-id": b"a\0b\xff\xed\xa0\x80" * 100}
    assert given_up(feed, strict, feed.raw(encoded.value, headers))


_NOISE = random.Random(1)
_PRODUCERS = {
    "a NUL": "a\0b",
    "longer than an index row": "".join(chr(_NOISE.randrange(0x4E00, 0x9FFF)) for _ in range(6000)),
    "a character too many": "p" * 256,
}


def of_producer(feed: Feed, producer: str) -> PackageMessage:
    message = feed.message(Action.ADD, ["/a"], [], [page("/a")])
    return replace(message, entry=replace(message.entry, producer=producer, epoch=1, sequence=1))


@pytest.mark.parametrize("producer", _PRODUCERS.values(), ids=_PRODUCERS.keys())
def test_r14_a_producer_that_can_be_none_fails(feed: Feed, strict: Worker, producer: str) -> None:
    offset = feed.append(of_producer(feed, producer))
    assert "producer" in given_up(feed, strict, offset)


def test_r27_the_longest_producer_is_one(feed: Feed, strict: Worker) -> None:
    message = of_producer(feed, "\U00020000" * 255)
    feed.append(message)
    feed.append(message)
    strict.run()
    assert failed(strict, feed) == []
    assert [s.offset for s in feed.statuses()] == [0], "the second is a repeat"


@pytest.mark.parametrize("producer", _PRODUCERS.values(), ids=_PRODUCERS.keys())
def test_r14_such_a_package_is_cleared_and_passed_by_a_reset(
    feed: Feed, worker: Worker, producer: str
) -> None:
    with following(worker) as follower:
        worker.begin()
        feed.clear("sub", feed.append(of_producer(feed, producer)))
        follower.catch_up()
        worker.run()
        assert [s.status for s in reported_of(worker, feed)] == [Status.REMOVED]
        last = feed.append(of_producer(feed, producer))
        feed.control("sub", DesiredState.STOP)
        worker.end()
        command = feed.reset("sub", last)
        follower.catch_up()
        assert reported(worker, feed, command)[-1] == (CommandState.APPLIED, 0, "")


def reported_of(worker: Worker, feed: Feed) -> list[StatusMessage]:
    worker.send_statuses()
    return feed.statuses()


@pytest.mark.parametrize("error", [psycopg.DataError("22001"), ProgramLimitExceeded("54000")])
def test_r30_a_command_that_the_database_can_not_hold_is_rejected(
    feed: Feed, worker: Worker, error: psycopg.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = control.store

    def refuse_the_first(*arguments: Any) -> None:
        monkeypatch.setattr(control, "store", store)
        store(*arguments)
        raise error

    with following(worker) as follower:
        monkeypatch.setattr(control, "store", refuse_the_first)
        refused = feed.control("sub", DesiredState.STOP)
        follower.catch_up()
        assert worker.control.desired("main") is DesiredState.RUN, "nothing of it is kept"
        done = feed.control("sub", DesiredState.PAUSE)
        follower.catch_up()
        (_, (state, _, reason)) = reported(worker, feed, refused)
        assert (state, str(error) in reason) == (CommandState.REJECTED, True)
        assert reported(worker, feed, done)[-1][0] is CommandState.APPLIED


def test_r14_a_path_outside_the_roots_fails(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0), roots=["/content", "/next"])
    offset = feed.add(page("/content-secret/a"))
    assert "/content-secret/a" in given_up(feed, worker, offset)


def test_r14_json_that_postgres_refuses_fails_with_its_reason(feed: Feed, strict: Worker) -> None:
    offset = feed.add(Node("/a", "page", '{"text": "\\u0000"}'))
    assert "\\u0000" in given_up(feed, strict, offset)


def test_r14_json_nested_too_deep_fails(feed: Feed, strict: Worker) -> None:
    offset = feed.add(Node("/a", "page", '{"a":' * 60_000 + "1" + "}" * 60_000))
    assert "stack depth" in given_up(feed, strict, offset)
