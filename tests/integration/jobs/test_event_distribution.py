"""Events from one instance to all others, through absences, cuts and slow handlers."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from packhorse.db.connect import connect
from packhorse.db.engine import conninfo
from packhorse.jobs.consumer import JobContext
from packhorse.jobs.event import APPLICATION, Event
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.bus import EventBus, EventNotStored
from packhorse.jobs.events.delivery import GAP
from packhorse.jobs.events.pruning import EventRetention, prune_events
from packhorse.jobs.events.receiver import Receiver
from packhorse.jobs.events.storing import store_event
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.names import InvalidProperties
from tests.harness.borrowing import borrowed, pooled
from tests.harness.jobs.events import QUICK, Instance, Writer, bookkeeper, emit_all, named
from tests.harness.jobs.hosted import FAST, hosted, until
from tests.harness.postgres import Databases, end_sessions
from tests.harness.waiting import eventually


def test_an_event_reaches_every_other_instance_once(database_url: str) -> None:
    with ExitStack() as stack:
        a, b, c = (
            stack.enter_context(Instance(database_url, name).running()) for name in ("a", "b", "c")
        )
        a.bus.send(named("first", size=3))
        for number in range(50):
            a.bus.post(named(f"n{number}"))
            b.bus.post(Event("t/local", {"name": "local"}))
        wanted = ["first", *(f"n{number}" for number in range(50))]
        eventually(lambda: a.names() == wanted and c.names() == wanted)
        eventually(lambda: [name for name in b.names() if name != "local"] == wanted)
        assert all(event.is_local for event in a.heard)
        assert b.heard[-1].topic.startswith("t/")
        assert dict(c.heard[0].properties) == {
            "name": "first",
            "size": 3,
            APPLICATION: "a",
        }, "the mark is cleared and the origin is set"
        assert not c.heard[0].is_local


def test_nobody_sets_where_an_event_comes_from(database_url: str) -> None:
    with Instance(database_url, "a").running() as a, bookkeeper(database_url) as connection:
        with pytest.raises(InvalidProperties, match=r"event\.application"):
            a.bus.send(named("forged", **{APPLICATION: "b"}))
        assert connection.execute("SELECT count(*) FROM jobs.event").fetchall() == [(0,)]
        assert a.heard == []


def test_one_that_was_away_gets_what_it_missed_and_nothing_twice(database_url: str) -> None:
    a, b = Instance(database_url, "a"), Instance(database_url, "b")
    with a.running():
        with b.running():
            a.bus.send(named("before"))
            eventually(lambda: b.names() == ["before"])
        for number in range(500):
            a.bus.post(named(f"n{number}"))
        again = Instance(database_url, "b")
        with again.running():
            assert again.names() == [f"n{number}" for number in range(500)]
            a.bus.send(named("after"))
            eventually(lambda: again.names()[-1] == "after")
            assert len(again.heard) == 501


def test_what_nobody_has_subscribed_to_is_passed(database_url: str) -> None:
    with Instance(database_url, "a").running() as a:
        a.ear.cancel()
        a.bus.subscribe("t/x", a.heard.append)
        emit_all(database_url, "other", topic="t/other")
        emit_all(database_url, "wanted")
        eventually(lambda: a.names() == ["wanted"])


def test_a_new_instance_begins_now(database_url: str) -> None:
    emit_all(database_url, "old")
    with Instance(database_url, "new").running() as new:
        emit_all(database_url, "young")
        eventually(lambda: new.names() == ["young"])


def test_events_of_a_transaction_that_rolls_back_never_were(database_url: str) -> None:
    writer = Writer(database_url, "w")
    with Instance(database_url, "a").running() as a:
        writer.write()
        writer.roll_back()
        writer.write()
        emit_all(database_url, "meanwhile")
        eventually(lambda: a.names() == ["meanwhile"])
        writer.commit()
        eventually(lambda: a.names() == ["meanwhile", "w2"])
    writer.close()


def test_a_transaction_that_outlives_an_absence_is_heard_of(database_url: str) -> None:
    writer = Writer(database_url, "w")
    with Instance(database_url, "a").running():
        writer.write()
        emit_all(database_url, "meanwhile")
    with Instance(database_url, "a").running() as a:
        writer.commit()
        eventually(lambda: sorted(a.names()) in (["meanwhile", "w1"], ["w1"]))
    writer.close()


def test_echoes_are_local_events_of_the_one_and_distributed_to_the_others(
    database_url: str,
) -> None:
    with (
        Instance(database_url, "a").running() as a,
        Instance(database_url, "b").running() as b,
        bookkeeper(database_url) as connection,
    ):
        record(connection, [NewEvent("packhorse/job/ADDED", "a", {"number": 1}, echo=True)])
        eventually(lambda: a.heard and b.heard)
    assert a.heard == [Event("packhorse/job/ADDED", {"number": 1})]
    assert b.heard == [Event("packhorse/job/ADDED", {"number": 1, APPLICATION: "a"})]


def test_a_slow_handler_does_not_hold_up_the_others(database_url: str) -> None:
    let_go = threading.Event()
    with Instance(database_url, "a", slow_s=0.3).running() as a:
        slow = a.bus.subscribe("**", lambda _: bool(let_go.wait(120)))
        emit_all(database_url, *(f"n{number}" for number in range(1_000)))
        eventually(lambda: len(a.heard) == 1_000)
        assert slow.state().slow
        let_go.set()
        eventually(lambda: slow.state().done + slow.state().lost == 1_000)


def test_an_absence_longer_than_retention_is_reported(database_url: str) -> None:
    with Instance(database_url, "a").running() as a:
        emit_all(database_url, "heard")
        eventually(lambda: a.names() == ["heard"])
    emit_all(database_url, "missed")
    prune_events(lambda: connect(database_url, "tests"), EventRetention(events_s=0))
    emit_all(database_url, "kept")
    with Instance(database_url, "a").running() as again:
        assert [event.topic for event in again.heard] == [GAP, "t/x"]
        assert again.heard[0].properties["reason"] == "pruned"
        assert again.names()[1:] == ["kept"]
    with Instance(database_url, "a").running() as third:
        emit_all(database_url, "last")
        eventually(lambda: third.names() == ["last"])


def test_sessions_that_end_cost_no_event_and_repeat_none(databases: Databases) -> None:
    url = databases.new("cut")
    with Instance(url, "a").running() as a, Instance(url, "b").running() as b:
        for number in range(300):
            a.bus.post(named(f"n{number}"))
            if number % 30 == 0:
                with borrowed(url) as connection:
                    end_sessions(connection, "packhorse-%")
        wanted = [f"n{number}" for number in range(300)]
        eventually(lambda: len(b.heard) >= 300)
        a.bus.send(named("last"))
        eventually(lambda: b.names()[-1] == "last")
    assert Counter(b.names()) == Counter([*wanted, "last"])


def test_what_was_handed_out_and_not_remembered_is_not_handed_out_again(database_url: str) -> None:
    heard: list[Event] = []
    bus = EventBus()
    bus.subscribe("**", heard.append)
    kinds = [psycopg.Connection, _CursorBreaker, _CursorBreaker]
    receiver = Receiver(
        lambda: kinds.pop().connect(conninfo(database_url), autocommit=True), "a", bus, QUICK
    )
    receiver.start()
    assert receiver.wait_until_current(120)
    emit_all(database_url, *"abc")
    eventually(lambda: not kinds, what="it has connected for the third time")
    emit_all(database_url, "d")
    eventually(lambda: len(heard) >= 4)
    receiver.stop(60)
    bus.stop(60)
    assert [event.properties["name"] for event in heard] == list("abcd")


class _CursorBreaker(psycopg.Connection[Any]):
    """Breaks when a cursor is to be stored."""

    def execute(self, query: Any, *given: Any, **more: Any) -> psycopg.Cursor[Any]:
        if "SET position" in str(query):
            self.close()
            raise psycopg.OperationalError("cut")
        return super().execute(query, *given, **more)


class _Lender:
    """Lends these connections, one after the other."""

    def __init__(self, *connections: psycopg.Connection) -> None:
        self._connections = iter(connections)

    def connection(self, timeout: float | None = None) -> psycopg.Connection:
        return next(self._connections)


def _stored(database_url: str) -> list[Any]:
    with bookkeeper(database_url) as connection:
        rows = connection.execute("SELECT properties ->> 'name' FROM jobs.event").fetchall()
    return [name for (name,) in rows]


def test_a_sender_hears_that_the_database_stays_away(database_url: str) -> None:
    gone = connect(database_url, "tests")
    gone.close()
    with pytest.raises(EventNotStored, match="not known to be stored"):
        store_event(_Lender(gone), "a", named("lost"), patience_s=0.0)


def test_a_sender_of_a_program_that_ends_does_not_wait(database_url: str) -> None:
    with pooled(database_url, "tests") as pool:
        pass
    with pytest.raises(EventNotStored, match="its program ends"):
        store_event(pool, "a", named("late"), patience_s=600.0)


def test_a_consumer_sends_while_it_holds_the_last_connection_of_consumers(
    database_url: str,
) -> None:
    def consume(_: Job, context: JobContext) -> None:
        with context.completion():
            host.events.send(named("sent"))

    settings = replace(FAST, connections=1)
    with hosted(database_url, {"test/**": consume}, settings=settings) as host:
        until(host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED)
    assert "sent" in _stored(database_url)


def test_events_that_nobody_knows_to_be_stored_are_stored_once(database_url: str) -> None:
    forgetful = _Forgetful.connect(conninfo(database_url), autocommit=True)
    store_event(_Lender(forgetful, connect(database_url, "tests")), "a", named("once"))
    assert _stored(database_url) == ["once"]


def test_a_database_that_takes_no_writes_for_now_is_waited_for(database_url: str) -> None:
    standby = connect(database_url, "tests", autocommit=True)
    standby.execute("SET default_transaction_read_only = on")
    store_event(_Lender(standby, connect(database_url, "tests")), "a", named("patient"))
    assert _stored(database_url) == ["patient"]


def test_an_event_that_the_database_refuses_is_not_tried_again(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        connection.execute("RESET ROLE")
        connection.execute("ALTER TABLE jobs.event ADD CHECK (topic <> 't/refused')")
    with pytest.raises(EventNotStored, match="refused"):
        store_event(_Lender(connect(database_url, "tests")), "a", Event("t/refused"))
    assert _stored(database_url) == []


class _Forgetful(psycopg.Connection[Any]):
    """Breaks after its commit, whose answer nobody gets."""

    @contextmanager
    def transaction(self, *_: Any, **__: Any) -> Iterator[psycopg.Transaction]:
        with super().transaction() as transaction:
            yield transaction
        self.close()
        raise psycopg.OperationalError("the answer was lost")
