"""Subscriptions of two publisher agents on one tree.

They wait for each other only where they meet (R8).
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.messaging.api import Record
from packhorse.messaging.open import open_journal
from packhorse.packages import apply as packages_apply
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import decode_entry
from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits
from tests.harness.feed import Feed, page
from tests.harness.fold import Content, fold
from tests.harness.subscriber import Worker, content_of
from tests.integration.subscriber.conftest import Workers, empty

URGENT, BULK = "urgent", "bulk"
ONE_BY_ONE = GroupLimits(packages=1, passed_s=0)


@pytest.fixture
def subscriptions(workers: Workers) -> Callable[..., tuple[Worker, Worker]]:
    """Makes two subscriptions of one subscriber: they share the lease, as in one process."""

    def make(**options: Any) -> tuple[Worker, Worker]:
        return sharing_a_lease(workers(agent=BULK, **options), workers(agent=URGENT, **options))

    return make


def sharing_a_lease(first: Worker, second: Worker) -> tuple[Worker, Worker]:
    first.begin()
    second.lease, second.lease_connection = first.lease, first.lease_connection
    second.begin()
    second.lease_connection = None  # the first one's to close
    return first, second


class HeldOpen:
    """An import that has applied its packages and does not commit until it is allowed to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
        self.reached, self.over = threading.Event(), threading.Event()
        assert worker.session is not None
        held, apply = worker.session._connection, importer.apply

        def apply_and_wait(connection: psycopg.Connection, *rest: Any, **more: Any) -> None:
            apply(connection, *rest, **more)
            if connection is held:
                connection.execute("SELECT 1").fetchone()  # what was sent has been done
                self.reached.set()
                assert self.over.wait(120)

        monkeypatch.setattr(importer, "apply", apply_and_wait)
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(worker.run)
        assert self.reached.wait(120)

    def end(self) -> None:
        self.over.set()
        self._running.result(120)
        self._pool.shutdown()


def subtree(top: str, version: int = 0) -> list[Node]:
    return [page(top, version), *(page(f"{top}/{number}", version) for number in range(30))]


def test_r10_a_long_bulk_import_delays_no_urgent_package_elsewhere(
    feed: Feed, subscriptions: Callable[..., tuple[Worker, Worker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.add(page("/content"), agent=BULK)
    bulk, urgent = subscriptions()
    bulk.run()
    urgent.run()
    whole = [page("/content", 1), *subtree("/content/bulk")]
    feed.append(feed.message(Action.ADD, ["/content"], ["/content/bulk"], whole, BULK))
    held = HeldOpen(monkeypatch, bulk)
    feed.add(page("/content/site/p"), page("/content/news"), agent=URGENT)
    feed.add(*subtree("/content/site/q"), deep=["/content/site/q"], agent=URGENT)
    feed.delete("/content/news", agent=URGENT)
    urgent.run()
    assert not held.over.is_set()
    seen = content_of(urgent.url)
    assert "/content/site/q/29" in seen
    assert "/content/news" not in seen
    assert "/content/bulk" not in seen
    held.end()
    assert content_of(urgent.url) == fold(feed.records(), feed.blobs)


def write_new(feed: Feed, agent: str) -> None:
    feed.add(page("/content/bulk/new/p"), agent=agent)


def remove_all(feed: Feed, agent: str) -> None:
    feed.delete("/content/bulk", agent=agent)


def replace_all(feed: Feed, agent: str) -> None:
    feed.add(page("/content/bulk", 2), deep=["/content/bulk"], agent=agent)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (write_new, remove_all),
        (write_new, replace_all),
        (remove_all, write_new),
        (replace_all, remove_all),
    ],
)
def test_r8_overlapping_imports_are_serialised(
    feed: Feed,
    subscriptions: Callable[..., tuple[Worker, Worker]],
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Feed, str], None],
    then: Callable[[Feed, str], None],
) -> None:
    feed.add(*subtree("/content/bulk"), deep=["/content/bulk"], agent=BULK)
    bulk, urgent = subscriptions(lock_ms=100, policy=RetryPolicy(0, 0.0, 0.0))
    bulk.run()
    urgent.run()
    first(feed, BULK)
    held = HeldOpen(monkeypatch, bulk)
    then(feed, URGENT)
    urgent.step_until_reported("lock timeout")
    held.end()
    urgent.run()
    assert content_of(urgent.url) == fold(feed.records(), feed.blobs)
    assert urgent.report.state.retries == 0


def test_r10_a_deadlock_is_nobodys_attempt(
    feed: Feed, subscriptions: Callable[..., tuple[Worker, Worker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each subscription makes a folder that the other needs next, in one transaction."""
    for agent, first, then in ((BULK, "/x", "/y"), (URGENT, "/y", "/x")):
        feed.add(page(f"{first}/{agent}"), agent=agent)
        feed.delete(f"{first}/{agent}", agent=agent)  # makes the subscription write what waits
        feed.add(page(f"{then}/{agent}"), agent=agent)
    bulk, urgent = subscriptions(policy=RetryPolicy(0, 0.0, 0.0))
    meet_after_first_flush(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(subscription.run) for subscription in (bulk, urgent)]:
            done.result(120)
    assert content_of(bulk.url) == fold(feed.records(), feed.blobs)


def meet_after_first_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier, flush, met = (
        threading.Barrier(2),
        packages_apply.PendingChanges.flush,
        threading.local(),
    )

    def flush_and_meet(self: packages_apply.PendingChanges) -> None:
        flush(self)
        if not hasattr(met, "once"):
            met.once = True
            barrier.wait(120)

    monkeypatch.setattr(packages_apply.PendingChanges, "flush", flush_and_meet)


def write_all(url: str, nodes: Sequence[Node]) -> None:
    with psycopg.connect(url) as connection:
        tree.upsert(connection, nodes)


SEGMENTS = st.lists(st.sampled_from("xy"), min_size=1, max_size=3)
PATHS = SEGMENTS.map(lambda segments: "/" + "/".join(segments))
KINDS = st.sampled_from(["page", "deep", "delete"])
SENT = st.lists(st.tuples(KINDS, PATHS), min_size=1, max_size=3)


def send(feed: Feed, agent: str, packages: Sequence[tuple[str, str]], below: str = "") -> None:
    for kind, path in packages:
        at = below + path
        if kind == "delete":
            feed.delete(at, agent=agent)
        elif kind == "deep":
            feed.add(page(at, len(feed.records())), page(at + "/z"), deep=[at], agent=agent)
        else:
            feed.add(page(at, len(feed.records())), agent=agent)


@contextmanager
def meeting_before_they_commit() -> Iterator[None]:
    """Let no subscription commit before the other has applied something too, if it can at all."""
    barrier, apply = threading.Barrier(2), importer.apply

    def apply_and_meet(connection: psycopg.Connection, *rest: Any, **more: Any) -> None:
        apply(connection, *rest, **more)
        connection.execute("SELECT 1").fetchone()  # what was sent has been done
        try:
            barrier.wait(0.05)
        except threading.BrokenBarrierError:  # the other one waits for a lock, or has ended
            barrier.reset()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importer, "apply", apply_and_meet)
        yield


def run_both(url: str, feed: Feed) -> Content:
    first, second = (
        Worker(url, feed.journal, feed.blobs, agent=agent, limits=ONE_BY_ONE)
        for agent in (BULK, URGENT)
    )
    subscriptions = sharing_a_lease(first, second)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(subscription.run) for subscription in subscriptions]:
            done.result(120)
    for subscription in reversed(subscriptions):
        subscription.die()
    return content_of(url)


def interleavings(feed: Feed) -> list[list[Record]]:
    """Return the journal in every order that keeps each subscription's own."""
    subscriptions: dict[str, list[Record]] = {BULK: [], URGENT: []}
    for record in feed.records():
        subscriptions[decode_entry(record.headers).publisher_agent].append(record)
    total = sum(map(len, subscriptions.values()))
    orders = []
    for places in itertools.combinations(range(total), len(subscriptions[BULK])):
        left = {agent: iter(records) for agent, records in subscriptions.items()}
        orders.append([next(left[BULK if n in places else URGENT]) for n in range(total)])
    return orders


def assert_every_node_has_its_folders(content: Content) -> None:
    for path in content:
        above = path.rpartition("/")[0]
        assert above == "" or above in content, path


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bulk=SENT, urgent=SENT, apart=st.booleans())
def test_r8_two_subscriptions_together_leave_what_one_after_the_other_would(
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    bulk: list[tuple[str, str]],
    urgent: list[tuple[str, str]],
    apart: bool,
) -> None:
    empty(database_url)
    journal = open_journal(f"memory://{tmp_path_factory.mktemp('journal')}", client_name="tests")
    feed = Feed(journal, open_blobs(str(tmp_path_factory.mktemp("blobs"))))
    before = [page("/x"), page("/x/y"), page("/x/y/x"), page("/y"), page("/y/x")]
    feed.add(*before, agent=BULK)
    send(feed, BULK, bulk, "/b" if apart else "")
    send(feed, URGENT, urgent, "/u" if apart else "")
    write_all(database_url, before)
    with meeting_before_they_commit():
        content = run_both(database_url, feed)
    assert_every_node_has_its_folders(content)
    if apart:
        assert content == fold(feed.records(), feed.blobs)
    else:
        assert content in [fold(order, feed.blobs) for order in interleavings(feed)]
    journal.close()
