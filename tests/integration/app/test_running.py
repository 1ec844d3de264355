"""An app on a real database: jobs, events, schedules, who leads, and how it ends."""

import os
import queue
import signal
import textwrap
import threading
from pathlib import Path

import psycopg
import pytest

from packhorse import App
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse.db.transactions import within
from packhorse.errors import Permanent
from packhorse.jobs.consumer import JobContext
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange
from packhorse.jobs.content_changes.recording import record_changes
from packhorse.jobs.content_changes.watches import list_watches
from packhorse.jobs.event import APPLICATION, Event
from packhorse.jobs.events.delivery import GAP
from packhorse.jobs.events.pruning import EventRetention, prune_events
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.scheduling.store import declare_schedule
from packhorse.jobs.store.adding import AddResult
from packhorse.topology.events import TopologyEvent
from packhorse.topology.leader import NotLeader
from tests.harness.imported import begin_script
from tests.harness.jobs.schedules import Schedules
from tests.harness.postgres import Databases
from tests.harness.waiting import eventually

WAIT_S = 120.0


def app(url: str, name: str = "worker", **settings: str) -> App:
    """Whoever leaves says so; nobody is silent here, and a busy machine may stand still."""
    return App(name, database_url=url, topology_interval_s=0.2, topology_timeout_s=30.0, **settings)


def until_it_hears(url: str) -> None:
    """Wait until the one app on the database hears what is stored: a new one begins at a moment."""

    def begun() -> bool:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT FROM jobs.event_cursor").rowcount == 1

    eventually(begun, timeout=WAIT_S, what="it hears events")


def test_it_migrates_a_new_database_and_does_jobs(databases: Databases) -> None:
    made = app(databases.server.ensure_database("app_of_nobody"), instance_id="one")
    made.queue("quick", "images/**", max_parallel=2)
    seen: list[str] = []

    @made.consumer("images/*")
    def thumbnail(job: Job, context: JobContext) -> None:
        seen.append(job.properties["path"])

    with made.running():
        number = made.add("images/thumbnail", {"path": "/a"}, id="a").job.number
        state = eventually(
            lambda: (found := made.jobs.get(number)).state.final and found,
            timeout=WAIT_S,
            what="the job is done",
        )
        assert state
        assert (state.state, state.instance, state.queue) == (JobState.SUCCEEDED, "one", "quick")
        with pytest.raises(Permanent, match="runs already"), made.running():
            pass
    assert seen == ["/a"]
    with made.running():  # once more
        assert made.add("images/thumbnail", {"path": "/a"}, id="a").job.number == number


def test_jobs_and_events_of_a_transaction_are_there_when_it_commits(database_url: str) -> None:
    made, heard, done = app(database_url), threading.Event(), threading.Event()
    topics: list[str] = []

    @made.on_event("order/**", where={">=size": 10})
    def order(event: Event) -> None:
        topics.append(event.topic)
        if event.topic == "order/kept":
            heard.set()

    @made.consumer("work")
    def work(job: Job, context: JobContext) -> None:
        done.set()

    with psycopg.connect(database_url) as connection:
        with made.running():
            until_it_hears(database_url)
            made.send("order/local", {"size": 12})
            made.send("order/small", {"size": 2})
            made.add("work", connection=connection)
            made.send("order/gone", {"size": 12}, connection=connection)
            connection.rollback()
            assert not done.is_set()
            made.add("work", connection=connection)
            made.send("order/kept", {"size": 12}, connection=connection)
            connection.commit()
            assert heard.wait(WAIT_S)
            assert done.wait(WAIT_S)
        assert topics == ["order/local", "order/kept"]
        made.add("work", connection=connection)  # also while it does not run


def test_within_a_transaction_an_instance_gives_and_sends_in_its_own_name(
    database_url: str,
) -> None:
    one, two = app(database_url, instance_id="one"), app(database_url, instance_id="two")
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    one.on_event("order/*")(heard.put)
    one.consumer("work")(lambda job: None)
    with one.running(), psycopg.connect(database_url, autocommit=True) as connection:
        until_it_hears(database_url)
        given = one.add("work", id="a", connection=connection)
        eventually(
            lambda: one.jobs.get(given.job.number).state.final, timeout=WAIT_S, what="it is done"
        )
        with two.running():
            assert two.add("work", id="a", connection=connection).verdict is AddResult.EXISTING
        one.send("order/own", connection=connection)
        assert APPLICATION not in heard.get(timeout=WAIT_S).properties


def test_a_handler_hears_of_the_events_that_its_program_has_missed(database_url: str) -> None:
    made, heard = app(database_url, instance_id="one"), threading.Event()
    told: list[Event] = []
    others: list[Event] = []
    made.on_event("order/**", where={">=size": 10})(others.append)

    @made.on_event("order/**", where={">=size": 10}, gaps=True)
    def order(event: Event) -> None:
        told.append(event)
        if event.topic == "order/kept":
            heard.set()

    def give(topic: str) -> None:
        with psycopg.connect(database_url) as connection:
            made.send(topic, {"size": 12}, everywhere=True, connection=connection)

    with made.running():
        until_it_hears(database_url)
        give("order/kept")
        assert heard.wait(WAIT_S)
    give("order/missed")
    prune_events(lambda: connect(database_url, "tests"), EventRetention(events_s=0))
    heard.clear()
    with made.running():
        give("order/kept")
        assert heard.wait(WAIT_S)
    assert [event.topic for event in told] == ["order/kept", GAP, "order/kept"]
    assert told[1].properties["reason"] == "pruned"
    assert [event.topic for event in others] == ["order/kept", "order/kept"]


def test_a_schedule_gives_its_consumer_jobs(database_url: str) -> None:
    made, fired = app(database_url), threading.Event()

    @made.consumer("report/nightly", every=1, properties={"kind": "short"})
    def report(job: Job, context: JobContext) -> None:
        assert job.schedule == "worker.report.nightly"
        assert job.properties == {"kind": "short"}
        fired.set()

    with made.running():
        assert fired.wait(WAIT_S)


def test_jobs_of_a_schedule_do_not_pile_up_while_the_app_is_away(database_url: str) -> None:
    made, site = app(database_url), Schedules(database_url)
    made.consumer("report/nightly", every=3600)(lambda job: None)
    [definition] = made._registered.schedules
    with site.transaction() as connection:
        declare_schedule(connection, definition)
    for _ in range(3):
        site.fire_at(site.next_fire_time(definition.name))
    assert site.jobs() == [(definition.name, "", 0)]


def test_changes_of_content_are_heard_and_become_jobs_of_one_instance(database_url: str) -> None:
    made, heard, pictured = app(database_url), threading.Event(), threading.Event()
    events: list[tuple[str, list[str]]] = []
    jobs: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()

    @made.on_content("/site/news")
    def news(event: Event) -> None:
        events.append((event.topic, event.properties["paths"]))
        heard.set()

    @made.on_content("/site", types=["image"])
    def images(event: Event) -> None:
        events.append((event.properties["watch"], event.properties["paths"]))
        pictured.set()

    @made.consumer("site/changed", content=["/site", "/other"])
    def changed(job: Job, context: JobContext) -> None:
        jobs.put((job.properties["change"], sorted(job.properties["paths"])))

    paths = ["/elsewhere", "/site/page", "/site/news/one"]
    change = ContentChange(ChangeKind.ADDED, paths)
    with made.running():
        until_it_hears(database_url)
        with psycopg.connect(database_url) as connection:
            tree.upsert(connection, [Node("/site/page", "image"), Node("/site/news/one", "page")])
            with within(connection) as bookkeeping:
                record_changes(bookkeeping, list_watches(bookkeeping), [change])
        assert pictured.wait(WAIT_S)
        assert heard.wait(WAIT_S)
        assert jobs.get(timeout=WAIT_S) == ("added", ["/site/news/one", "/site/page"])
    assert sorted(events) == [
        ("packhorse/content/added", ["/site/news/one"]),
        ("worker.images", ["/site/page"]),
    ]


def test_one_of_two_leads_and_the_other_takes_over(database_url: str) -> None:
    first, second = app(database_url, instance_id="first"), app(database_url, instance_id="second")
    one, two = first.leader("mail"), second.leader("mail")
    views = threading.Event()

    @second.on_topology
    def look(event: TopologyEvent) -> None:
        views.set()

    with second.running():
        with first.running():
            eventually(lambda: one.is_mine() or two.is_mine(), timeout=WAIT_S, what="one leads")
            leads, waits = (one, two) if one.is_mine() else (two, one)
            assert not waits.is_mine()
            with leads.transaction() as connection:
                connection.execute("CREATE TABLE mails (id int)")
            with pytest.raises(NotLeader), waits.transaction():
                pass
        eventually(two.is_mine, timeout=WAIT_S, what="the second one leads alone")
        later = second.leader("another")
        eventually(later.is_mine, timeout=WAIT_S, what="what is asked for later is announced too")
    assert views.is_set()


PROGRAM = """
    from packhorse import App

    app = App("told")

    @app.consumer("told/work")
    def work(job):
        print(job.properties["word"], flush=True)

    app.run()
"""


def test_a_program_runs_until_it_is_asked_to_end(database_url: str, tmp_path: Path) -> None:
    program = tmp_path / "told.py"
    program.write_text(textwrap.dedent(PROGRAM))
    giver = app(database_url)
    with psycopg.connect(database_url) as connection:
        giver.add("told/work", {"word": "done"}, connection=connection)
    said = tmp_path / "said"
    running = begin_script(program, {"PACKHORSE_DATABASE_URL": database_url})
    try:
        eventually(lambda: "done\n" in said.read_text(), timeout=WAIT_S, what="the job is done")
        running.terminate()
        assert running.wait(WAIT_S) == 0, said.read_text()
    finally:
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
    assert "told is ready as " in said.read_text()
    said.unlink()
    wrong = begin_script(program, {"PACKHORSE_DATABASE_URL": "postgresql://127.0.0.1:1/x"})
    assert wrong.wait(WAIT_S) == 1
    assert said.read_text().startswith("can't start: the database can't be used")
    assert len(said.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/x", "postgresql://user:password"),
        ("postgresql://127.0.0.1:1/x", "is it running"),
    ],
)
def test_what_keeps_it_from_starting_is_said(url: str, says: str) -> None:
    from packhorse.errors import PackhorseError

    with pytest.raises(PackhorseError, match=says), app(url).running():
        pass
