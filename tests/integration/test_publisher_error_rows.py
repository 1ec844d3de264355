"""Whose rows of outcomes a step on an error queue reads and changes (R18)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from psycopg import Connection

from packhorse.db.connect import async_pool, connect
from packhorse_services.publisher.outcomes.error_queue import (
    ErrorQueueEntry,
    ErrorQueuePlace,
    ErrorQueues,
    ErrorSelection,
    NotInErrorQueue,
)
from packhorse_services.publisher.queues.error_counts import ErrorCounts

_OUTCOMES = """
    INSERT INTO bookkeeping.outcome (agent, subscriber, journal_id, log_offset, package_id, status,
        attempts, reason, command_id, decided_at, recorded_at, dismissed_at)
    SELECT agent, subscriber, journal_id, at, format('%s/%s/%s', subscriber, journal_id, at),
        status, 1, 'no', '', now(), at_hour, dismissed_at
    FROM unnest('{main, other}'::text[]) AS agent, unnest('{sub1, sub2}'::text[]) AS subscriber, (
        VALUES ('j1', 5, 'REMOVED_FAILED', '2026-01-01 12:00'::timestamptz, NULL::timestamptz),
            ('j2', 5, 'REMOVED_FAILED', '2026-01-01 13:00', NULL),
            ('j3', 5, 'REMOVED_FAILED', '2026-01-01 11:00', NULL),
            ('j2', 6, 'REMOVED_FAILED', '2026-01-01 10:00', NULL),
            ('j2', 7, 'REMOVED', '2026-01-01 10:00', NULL),
            ('j2', 8, 'REMOVED_FAILED', '2026-01-01 10:00', '2026-01-01 14:00')
    ) AS kept (journal_id, at, status, at_hour, dismissed_at);
"""
ALL = [("j2", 6), ("j3", 5), ("j1", 5), ("j2", 5)]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(_OUTCOMES.encode())
        yield connection


class Steps:
    """Does one step on the error queue of sub1, whose publisher is main."""

    def __init__(self, url: str) -> None:
        self._url, self.counts = url, ErrorCounts()

    def __call__(self, step: Callable[[ErrorQueues], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            async with async_pool(self._url, "tests") as pool:
                return await step(ErrorQueues(pool, "main", self.counts))

        return asyncio.run(done())


@pytest.fixture
def steps(database_url: str) -> Steps:
    return Steps(database_url)


def changed(connection: Connection, what: str) -> list[tuple[Any, ...]]:
    """Return which rows differ from how they began."""
    return connection.execute(
        "SELECT agent, subscriber, journal_id, log_offset FROM bookkeeping.outcome "
        f"WHERE {what} ORDER BY log_offset, journal_id".encode()
    ).fetchall()


def test_a_page_has_one_subscribers_failures_in_the_order_they_were_recorded(
    connection: Connection, steps: Steps
) -> None:
    first = steps(lambda queues: queues.page("sub1", ErrorQueuePlace(), 3))
    rest = steps(lambda queues: queues.page("sub1", first.behind, 3))
    assert [(one.journal_id, one.offset) for one in (*first.found, *rest.found)] == ALL
    assert len(first.found) == 3
    assert {one.package_id[:4] for one in first.found} == {"sub1"}
    assert rest.behind is None
    assert steps(lambda queues: queues.count("sub1")) == len(ALL)


@pytest.mark.parametrize(
    ("journal_id", "found"), [("j1", "j1"), ("j3", "j3"), ("gone", "j2"), ("", "j2")]
)
def test_an_offset_means_the_log_in_use_or_else_what_was_recorded_last(
    connection: Connection, steps: Steps, journal_id: str, found: str
) -> None:
    assert steps(lambda queues: queues.find("sub1", 5, journal_id)).package_id == f"sub1/{found}/5"
    meant = ErrorSelection(offsets=[5])
    [one] = steps(lambda queues: queues.select("sub1", meant, journal_id, 10))
    assert one == ErrorQueueEntry(found, 5)


@pytest.mark.parametrize("offset", [7, 8, 9])
def test_what_is_no_failure_or_was_dismissed_is_not_found(
    connection: Connection, steps: Steps, offset: int
) -> None:
    with pytest.raises(NotInErrorQueue):
        steps(lambda queues: queues.find("sub1", offset, "j2"))


def test_only_what_was_named_is_dismissed(connection: Connection, steps: Steps) -> None:
    named = [ErrorQueueEntry("j2", at) for at in (6, 7, 8)] + [ErrorQueueEntry("j1", 5)]
    assert steps(lambda queues: queues.dismiss("sub1", named, "u")) == [5, 6]
    assert changed(connection, "dismissed_at > '2026-01-02'") == [
        ("main", "sub1", "j1", 5),
        ("main", "sub1", "j2", 6),
    ]
    assert steps.counts.count("sub1") == len(ALL) - 2
    assert steps(lambda queues: queues.dismiss("sub1", named, "u")) == []


def test_one_package_is_noted_as_distributed_again(connection: Connection, steps: Steps) -> None:
    failed = steps(lambda queues: queues.find("sub1", 5, "j2"))
    steps(lambda queues: queues.redistributed("sub1", failed, "again"))
    assert changed(connection, "redistributed_as = 'again'") == [("main", "sub1", "j2", 5)]
