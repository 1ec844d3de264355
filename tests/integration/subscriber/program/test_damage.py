"""A record that the journal can't read: one state, and passable by its offset, on both (R32)."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.wire.messages import CommandState, DesiredState, Status, SubscriptionState
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
        CASE WHEN "offset" = {offset} THEN journal.unreadable() ELSE headers END AS headers
        FROM journal.readable;
"""


def damage(feed: Feed, offset: int, request: pytest.FixtureRequest) -> None:
    """Harm a record where the journal keeps it, so that the backend's own check finds it."""
    if feed.journal_url.startswith("kafka"):
        broker: RunningKafka = request.getfixturevalue("kafka")
        (segment,) = broker.home.glob(f"**/{feed.topics.package}-0/*.log")
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
        connection.execute(_VIEW.format(table=table, offset=offset).encode())


def _flip(segment: Path, marker: bytes) -> None:
    at = segment.read_bytes().index(marker)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([marker[0] ^ 1]))


@pytest.mark.parametrize("way", ["clear", "reset"])
def test_r32_a_record_that_cannot_be_read_is_blocked_and_passed_by_its_offset(
    real_feed: Feed, database_url: str, request: pytest.FixtureRequest, way: str
) -> None:
    feed = real_feed
    options: dict[str, Any] = {"topic_prefix": feed.topics.package.removesuffix("_package")}
    first, bad = feed.add(page("/a")), feed.add(page("/damaged-1"))
    last = feed.add(page("/b"))
    damage(feed, bad, request)
    with running(feed, database_url, **options) as subscriber:
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.BLOCKED, "it is blocked"
        )
        blocked = subscription(subscriber)
        assert (blocked.offset, blocked.retries >= 3) == (first, True)
        assert f"can't read offset {bad}" in blocked.last_error
        if way == "clear":
            command = feed.clear("sub", bad)
        else:
            feed.control("sub", DesiredState.STOP)
            eventually(
                lambda: subscription(subscriber).state is SubscriptionState.STOPPED, "it is stopped"
            )
            command = feed.reset("sub", bad)
            feed.control("sub", DesiredState.RUN)
        eventually(lambda: subscription(subscriber).offset == last, "it goes on")
        eventually(
            lambda: (
                CommandState.APPLIED
                in [one.state for one in feed.command_statuses() if one.command_id == command]
            ),
            "the command is reported as done",
        )
    assert set(content_of(database_url)) == {"/a", "/b"}
    removed = {one.offset for one in feed.statuses() if one.status is Status.REMOVED}
    assert removed == ({bad} if way == "clear" else set())
    for _ in range(10):
        record = feed.journal.read_at(feed.topics.package, bad)
        assert record is not None
        assert (record.headers, record.value, bool(record.damage)) == ({}, b"", True)


def test_a_journal_that_is_away_is_no_standby(feed: Feed, database_url: str) -> None:
    feed.journal._log.remove_topic(feed.topics.package)  # type: ignore[attr-defined]
    with running(feed, database_url) as subscriber:
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.WAITING_FOR_JOURNAL,
            "it says so",
        )
        assert subscription(subscriber).last_error
