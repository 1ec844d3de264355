"""A whole subscriber in the test's own process, and what the tests wait for in it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from packhorse.content.node import Node
from packhorse.content.tree import content_hash
from packhorse.messaging.memory import MemoryJournal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.wire.messages import SubscriberState, SubscriptionState
from packhorse_services.subscriber.assembly import SubscriberProgram, assemble
from packhorse_services.subscriber.settings import Settings
from tests.harness.feed import TOPICS, Feed
from tests.harness.postgres import waiting_for_locks
from tests.harness.subscriber import position_of, rows_of
from tests.harness.waiting import eventually


@contextmanager
def running(
    feed: Feed, url: str, journal: Any = None, **options: Any
) -> Iterator[SubscriberProgram]:
    """Run a whole subscriber in this process."""
    settings = Settings(
        **{
            "database_url": url,
            "subscriber": "sub",
            "backoff_first_s": 0.01,
            "backoff_longest_s": 0.05,
            "lease_s": 3600.0,  # no test waits for its end; whoever stops releases it
            "announce_s": 0.5,
            "editable": True,
            **options,
        }
    )
    subscriber = assemble(settings, journal or feed.journal, feed.blobs)
    with Lifecycle(subscriber.components) as lifecycle:
        yield subscriber
        lifecycle.check()


def subscription(subscriber: SubscriberProgram, agent: str = "main") -> SubscriberState:
    return next(r.state for r in subscriber.reports if r.state.publisher_agent == agent)


def imported(subscriber: SubscriberProgram, offset: int, agent: str = "main") -> None:
    eventually(
        lambda: subscription(subscriber, agent).offset >= offset, f"{agent} reaches {offset}"
    )


def heard_at_each(
    reading: Callable[..., Iterator[Node]], url: str, pid: int, heard: list[Any]
) -> Callable[..., Iterator[Node]]:
    """Return a reading that notes behind each node when a session last sent a statement."""

    def watched(*given: Any) -> Iterator[Node]:
        for node in reading(*given):
            yield node
            heard.append(
                *rows_of(url, f"SELECT query_start FROM pg_stat_activity WHERE pid = {pid}")
            )

    return watched


def gap(subscriber: SubscriberProgram, text: str, agent: str = "main") -> None:
    def shown() -> bool:
        state = subscription(subscriber, agent)
        return state.state is SubscriptionState.GAP and text in state.last_error

    eventually(shown, f"a gap with {text!r}")


def reached(url: str, offset: int) -> None:
    def there() -> bool:
        return bool(rows_of(url, "SELECT FROM bookkeeping.position")) and (
            position_of(url).offset >= offset
        )

    eventually(there, what=f"offset {offset}")


def session_that_waits(url: str) -> int | None:
    """Return the server process of a subscription that waits for a lock."""
    return next(iter(waiting_for_locks(url, "packhorse-subscription%")), None)


def hash_of(url: str) -> str:
    with closing(psycopg.connect(url)) as connection:
        return content_hash(connection)


def create_anew(feed: Feed) -> None:
    """Remove the package topic and create it again, as an operator might."""
    assert isinstance(feed.journal, MemoryJournal)
    feed.journal._log.remove_topic(TOPICS.package)
    feed.journal.create_topics(standard_topics(TOPICS))
