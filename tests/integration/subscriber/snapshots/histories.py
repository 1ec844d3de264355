"""What is appended before a snapshot is made, and subscribers that begin with one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg

from packhorse_services.subscriber.assembly import SubscriberProgram
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker
from tests.integration.subscriber.running import imported, running

Complete = Callable[..., Worker]
BOTH = ("main", "other")


def joining(feed: Feed, url: str, **options: Any) -> Any:
    return running(feed, url, start="snapshot", **options)


def some_history(feed: Feed) -> int:
    """Append packages of every kind; return the last offset."""
    feed.producer = "author"
    feed.add(page("/old"))
    for number in range(40):
        feed.add(page(f"/site/p{number % 15}", number))
    feed.add(page("/deep"), page("/deep/x/y"), deep=["/deep"])
    feed.add(page("/deep"), page("/deep/z"), deep=["/deep"])
    feed.delete("/site/p3")
    return feed.delete("/old")


@contextmanager
def complete_on_both(feed: Feed, url: str, **options: Any) -> Iterator[SubscriberProgram]:
    with running(feed, url, subscriber="complete", publisher_agents=BOTH, **options) as subscriber:
        yield subscriber


def everywhere(subscriber: SubscriberProgram, offset: int) -> None:
    for agent in BOTH:
        imported(subscriber, offset, agent)


def write(feed: Feed, rounds: int) -> int:
    """Append packages of both agents; return the last offset."""
    feed.producer = "author"
    for number in range(rounds):
        feed.add(page(f"/main/n{number % 7}", feed.sequence))
        last = feed.add(page(f"/other/n{number % 5}", feed.sequence), agent="other")
    return last


@contextmanager
def held(url: str, statement: str) -> Iterator[None]:
    """Hold what a statement does without committing it; who comes to it waits."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
        yield
        connection.rollback()


def occupied(url: str, path: str) -> AbstractContextManager[None]:
    """Hold a node that is not committed, so that a load which comes to it waits in its COPY."""
    return held(url, f"INSERT INTO content.node VALUES ('{path}', 'x', '{{}}', '{{}}')")
