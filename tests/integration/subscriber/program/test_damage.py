"""A record that the journal can't read: one state, and passable by its offset, on both (R32)."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.wire.messages import CommandState, DesiredState, Status, SubscriptionState
from packhorse_services.subscriber.assembly import SubscriberProgram
from tests.harness.feed import Feed, page
from tests.harness.kafka.broker import RunningKafka
from tests.harness.subscriber import content_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import running, subscription

_VIEW = """
    CREATE FUNCTION journal.unreadable() RETURNS bytea LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'invalid page in block 0' USING ERRCODE = 'data_corrupted';
    END $$;
    ALTER TABLE journal.{table} RENAME TO readable;
    CREATE VIEW journal.{table} AS SELECT "offset", time_ms, append_id, key, body,
        CASE WHEN "offset" IN ({offsets}) THEN journal.unreadable() ELSE headers END AS headers
        FROM journal.readable;
"""


def damage(feed: Feed, offsets: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    """Harm records where the journal keeps them, so that the backend's own check finds it."""
    if feed.journal_url.startswith("kafka"):
        broker: RunningKafka = request.getfixturevalue("kafka")
        (segment,) = broker.home.glob(f"**/{feed.topics.package}-0/*.log")
        for offset in offsets:
            _flip(segment, f"/damaged-{offset}".encode())
        return
    with psycopg.connect(feed.journal_url) as connection:
        row = connection.execute(
            "SELECT partition_id, first_offset FROM journal.segment "
            "JOIN journal.partition ON partition.id = partition_id "
            "JOIN journal.topic ON topic.id = topic_id WHERE topic.name = %s",
            (feed.topics.package,),
        ).fetchone()
        assert row is not None
        table = "records_{}_{}".format(*row)
        numbers = ", ".join(map(str, offsets))
        connection.execute(_VIEW.format(table=table, offsets=numbers).encode())


def _flip(segment: Path, marker: bytes) -> None:
    at = segment.read_bytes().index(marker)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([marker[0] ^ 1]))


def blocked(subscriber: SubscriberProgram, position: int, bad: int) -> None:
    def is_blocked() -> bool:
        found = subscription(subscriber)
        assert (found.state, found.offset) == (SubscriptionState.BLOCKED, position)
        assert f"can't read offset {bad}" in found.last_error
        return found.retries >= 3

    eventually(is_blocked, f"it is blocked at {bad}")


def test_r32_a_record_that_cannot_be_read_is_blocked_and_passed_by_its_offset(
    real_feed: Feed, database_url: str, request: pytest.FixtureRequest
) -> None:
    """The first one by a clear, the second one by a reset while it is stopped."""
    feed = real_feed
    options: dict[str, Any] = {"topic_prefix": feed.topics.package.removesuffix("_package")}
    names = ("/a", "/damaged-1", "/b", "/damaged-3", "/c")
    first, cleared, second, passed, last = (feed.add(page(name)) for name in names)
    damage(feed, (cleared, passed), request)
    with running(feed, database_url, **options) as subscriber:
        blocked(subscriber, first, cleared)
        commands = {feed.clear("sub", cleared)}
        blocked(subscriber, second, passed)
        feed.control("sub", DesiredState.STOP)
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.STOPPED, "it is stopped"
        )
        commands.add(feed.reset("sub", passed))
        feed.control("sub", DesiredState.RUN)
        eventually(lambda: subscription(subscriber).offset == last, "it goes on")
        eventually(lambda: commands <= _applied(feed), "both commands are reported as done")
    assert set(content_of(database_url)) == {"/a", "/b", "/c"}
    assert {one.offset for one in feed.statuses() if one.status is Status.REMOVED} == {cleared}
    for bad in (cleared, passed) * 5:
        record = feed.journal.read_at(feed.topics.package, bad)
        assert record is not None
        assert (record.headers, record.value, bool(record.damage)) == ({}, b"", True)


def _applied(feed: Feed) -> set[str]:
    reported = feed.command_statuses()
    return {one.command_id for one in reported if one.state is CommandState.APPLIED}


def test_a_journal_that_is_away_is_no_standby(feed: Feed, database_url: str) -> None:
    feed.journal._log.remove_topic(feed.topics.package)  # type: ignore[attr-defined]
    with running(feed, database_url) as subscriber:
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.WAITING_FOR_JOURNAL,
            "it says so",
        )
        assert subscription(subscriber).last_error
