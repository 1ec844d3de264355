"""A reset beside subscriptions that import long.

It waits, and neither lease nor log pays for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from packhorse.wire.messages import DesiredState, ResetCommand, SubscriptionState
from packhorse_services.subscriber.assembly import SubscriberProgram
from packhorse_services.subscriber.commands import control, reset
from packhorse_services.subscriber.commands.follower import CommandsBehind
from packhorse_services.subscriber.commands.handler import CommandHandler
from packhorse_services.subscriber.lease import SUBSCRIPTION_SESSIONS
from tests.harness.commands import following
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import waiting_for_locks
from tests.harness.subscriber import Worker, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import imported, running, subscription


def test_r11_a_reset_that_waits_for_a_long_import_costs_no_lease(
    feed: Feed, database_url: str
) -> None:
    options: dict[str, Any] = {"publisher_agents": ("main", "other"), "lease_s": 30.0}
    with running(feed, database_url, **options) as first:
        imported(first, feed.add(page("/a")))
        imported(first, feed.add(page("/x"), agent="other"), "other")
        feed.control("sub", DesiredState.STOP)
        eventually(lambda: subscription(first).state is SubscriptionState.STOPPED)
        with (
            running(feed, database_url, **options) as second,
            importing(database_url, first, "other") as end,
        ):
            waiting_since = expiry(database_url)
            feed.reset("sub", -1)
            eventually(
                lambda: waiting_for_locks(database_url, "packhorse-subscriber"),
                what="the reset is under way",
            )
            eventually(
                lambda: expiry(database_url) > waiting_since + timedelta(seconds=9),
                timeout=180,
                what="the lease is renewed all the while",
            )
            assert (first.lease.epoch(), second.lease.epoch()) == (1, None)
            assert position_of(database_url).offset == 0
            end()  # its session must be alive still
            eventually(lambda: subscription(first).offset == -1, what="the subscription is reset")
            assert (first.lease.epoch(), second.lease.epoch()) == (2, None)
            imported(first, feed.add(page("/y"), agent="other"), "other")


@contextmanager
def importing(url: str, subscriber: SubscriberProgram, agent: str) -> Iterator[Callable[[], None]]:
    """Be in a long import of a subscription, on a session as its own, until it is stopped."""
    application = SUBSCRIPTION_SESSIONS + subscriber.identity.instance
    with psycopg.connect(url, application_name=application) as connection:
        connection.execute(
            "UPDATE bookkeeping.position SET moved_at = now() WHERE publisher_agent = %s", (agent,)
        )
        yield connection.rollback


def expiry(url: str) -> datetime:
    ((expires_at,),) = rows_of(url, "SELECT expires_at FROM bookkeeping.lease")
    assert isinstance(expires_at, datetime)
    return expires_at


def test_r25_a_reset_reads_the_log_once_however_long_it_waits(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        feed.add(page(f"/n{number}"))
    looks = []
    target = reset.target
    monkeypatch.setattr(reset, "target", lambda *a, **k: looks.append(1) or target(*a, **k))
    with following(worker) as follower:
        worker.run()
        feed.control("sub", DesiredState.STOP)
        worker.end()
        with psycopg.connect(worker.url) as subscription_session:
            subscription_session.execute("UPDATE bookkeeping.position SET moved_at = now()")
            feed.reset("sub", 0)
            eventually(
                lambda: waiting_for_locks(worker.url, "packhorse-subscriber"), what="it waits"
            )
            eventually(
                lambda: not waiting_for_locks(worker.url, "packhorse-subscriber"),
                what="it gives way",
            )
            eventually(
                lambda: waiting_for_locks(worker.url, "packhorse-subscriber"), what="it tries again"
            )
        follower.catch_up()
    assert position_of(worker.url).offset == 0
    assert len(looks) == 1


def test_a_reset_reads_no_further_once_its_worker_ends(feed: Feed, worker: Worker) -> None:
    handler = CommandHandler("sub", ("main",), True, feed.journal, TOPICS.package)
    command = ResetCommand("reset", "sub", "main", feed.add(page("/a")))
    with psycopg.connect(worker.url) as connection:
        control.store(connection, "main", DesiredState.STOP, "stop")
        with pytest.raises(CommandsBehind):
            handler.prepare(connection, command, ends)


def ends() -> None:
    raise CommandsBehind("the worker ends")
