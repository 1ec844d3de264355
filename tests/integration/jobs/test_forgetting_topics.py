"""Topics that nothing uses are forgotten; a job that is being given never loses its topic."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from packhorse.jobs.filters import JobFilter
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger import topics
from packhorse.jobs.ledger.changing import JobChange
from packhorse.jobs.ledger.figures import JobFigures
from packhorse.jobs.ledger.topics import forget_topics
from packhorse.jobs.queue import QueueConfiguration, TooManyTopics
from packhorse.jobs.store import queues, statistics
from packhorse.jobs.store.adding import add_job
from packhorse.jobs.store.given import NewJob
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper, jobs_of
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually

GENEROUS_S = 120.0


def forget(url: str, *patterns: str, idle_s: float = 0, **given: Any) -> int:
    return forget_topics(lambda: psycopg.connect(url), patterns, idle_s=idle_s, **given)


def known(url: str) -> list[str]:
    with bookkeeper(url) as connection:
        return [topic for (topic,) in connection.execute("SELECT topic FROM jobs.topic ORDER BY 1")]


def learn(url: str, *names: str) -> None:
    with bookkeeper(url) as connection:
        queues.learn_topics(connection, names)


def do_brief(url: str, outcome: Outcome = Outcome.OK) -> None:
    worker = HandyWorker(url, f"i-{outcome}")
    [claimed] = worker.claim(queue="brief")
    worker.finish(claimed, outcome)


def about(figures: JobFigures) -> JobFigures:
    """The same, but for the order in which seconds were summed."""
    seconds: dict[str, Any] = {
        name: pytest.approx(getattr(figures, name)) for name in ("waiting_s", "processing_s")
    }
    return replace(figures, **seconds)


def test_what_is_used_stays(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    jobs.add_job("active")
    worker.claim()
    jobs.add_job("finished")
    worker.do()
    jobs.add_job("waits")
    jobs.add_job("later", delay=timedelta(hours=1))
    jobs.add_job("for/another", only_on="i9")
    learn(database_url, "named", "wide/1", "nothing")
    assert forget(database_url, "named", "wide/**", "**") == 2
    assert known(database_url) == ["active", "finished", "for/another", "later", "named", "waits"]
    jobs.bulk(JobChange.REMOVE, JobFilter(topic="finished"))
    assert forget(database_url, "named") == 1
    assert "finished" not in known(database_url)


def test_the_topic_of_a_content_watch_stays(database_url: str) -> None:
    with bookkeeper(database_url) as connection, connection.transaction():
        add_watch(connection, ContentWatch("w", ["/"], "watched"))
    learn(database_url, "other")
    assert forget(database_url) == 1
    assert known(database_url) == ["watched"]


def test_what_was_done_stays_in_the_figures_of_the_queue(database_url: str) -> None:
    jobs = jobs_of(database_url)
    jobs.put_queue(QueueConfiguration("brief", ("b/**",), keep_history=False))
    for topic, outcome in (("b/1", Outcome.OK), ("b/2", Outcome.OK), ("b/2", Outcome.CANCEL)):
        jobs.add_job(topic)
        do_brief(database_url, outcome)
    jobs.bulk(JobChange.REMOVE, JobFilter())
    before = jobs.statistics()
    assert forget(database_url, idle_s=86_400) == 0, "they were used today"
    assert forget(database_url) == 2
    after = jobs.statistics()
    assert after.all == about(before.all)
    assert after.queues == {name: about(figures) for name, figures in before.queues.items()}
    assert (set(before.topics), set(after.topics)) == ({"b/1", "b/2"}, set())
    jobs.add_job("b/1")
    do_brief(database_url)
    assert forget(database_url) == 1
    assert jobs.statistics().queues["brief"].succeeded == 3
    assert jobs.statistics().topics == {}


def test_who_uses_many_topics_is_not_refused_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MOST_TOPICS", 3)
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    for n in range(3):
        jobs.add_job(f"thing/{n}")
        worker.do()
    with pytest.raises(TooManyTopics, match="forgotten every hour"):
        jobs.add_job("thing/3")
    jobs.bulk(JobChange.REMOVE, JobFilter())
    assert forget(database_url) == 3
    assert jobs.add_job("thing/3").job.queue == "main"


def test_a_transaction_forgets_no_more_than_a_batch(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(database_url, *(f"t/{n}" for n in range(25)))
    batches: list[int] = []
    forget_some = topics._forget

    def counted(*given: Any) -> int:
        batches.append(forget_some(*given))
        return batches[-1]

    monkeypatch.setattr(topics, "_forget", counted)
    assert forget(database_url, batch=10, is_enough=lambda: True) == 10
    assert forget(database_url, batch=10) == 15
    assert batches == [10, 10, 5]


def test_a_topic_that_jobs_are_being_given_for_is_left_alone(database_url: str) -> None:
    """The adding transaction has found its topic, and its job can't be seen by others yet."""
    learn(database_url, "given", "rolled-back", "unused")
    with bookkeeper(database_url) as adding, bookkeeper(database_url) as other:
        queues.learn_topics(adding, ["given"])
        queues.learn_topics(other, ["rolled-back"])
        other.rollback()
        assert forget(database_url) == 2
        add_job(adding, "tests", NewJob("given"))
        assert forget(database_url) == 0
    assert known(database_url) == ["given"]
    assert forget(database_url) == 0, "now it has a job"
    number = HandyWorker(database_url).do()
    assert jobs_of(database_url).get(number).state is JobState.SUCCEEDED


def test_who_gives_a_job_for_a_topic_that_is_being_forgotten_learns_it_anew(
    database_url: str,
) -> None:
    learn(database_url, "old")
    added: list[str] = []

    def add() -> None:
        added.append(jobs_of(database_url).add_job("old").job.queue)

    adder = threading.Thread(target=add)
    with bookkeeper(database_url) as forgetting:
        assert topics._forget(forgetting, ["old"], (), 0) == 1
        adder.start()
        eventually(lambda: waiting_for_locks(database_url), timeout=GENEROUS_S)
    adder.join(GENEROUS_S)
    assert added == ["main"]
    assert known(database_url) == ["old"]
    number = HandyWorker(database_url).do()
    assert jobs_of(database_url).get(number).state is JobState.SUCCEEDED


def test_two_that_forget_at_once_do_no_harm(database_url: str) -> None:
    learn(database_url, *(f"t/{n}" for n in range(20)))
    with bookkeeper(database_url) as one:
        assert topics._forget(one, [f"t/{n}" for n in range(10)], (), 0) == 10
        assert forget(database_url) == 10
    assert known(database_url) == []


def do_and_leave(url: str, *names: str) -> None:
    """Let instances do a job each that is over, and leave rows of statistics behind."""
    jobs = jobs_of(url)
    jobs.put_queue(QueueConfiguration("brief", ("b/**",), keep_history=False))
    for name in names:
        jobs.add_job(name)
        do_brief(url)
    with bookkeeper(url) as connection:
        connection.execute("DELETE FROM jobs.worker")


def test_a_topic_that_is_forgotten_while_rows_are_folded_leaves_the_figures(
    database_url: str,
) -> None:
    do_and_leave(database_url, "b/1", "b/2")
    forgotten: list[int] = []
    forgetting = threading.Thread(target=lambda: forgotten.append(forget(database_url)))
    with bookkeeper(database_url) as folding:
        assert statistics.fold(folding, idle_s=0) == 2
        forgetting.start()
        eventually(lambda: waiting_for_locks(database_url), timeout=GENEROUS_S)
    forgetting.join(GENEROUS_S)
    assert forgotten == [2]
    after = jobs_of(database_url).statistics()
    assert (after.topics, after.queues["brief"].succeeded) == ({}, 2)


def test_who_folds_rows_does_not_wait_for_who_forgets(database_url: str) -> None:
    do_and_leave(database_url, "b/1", "b/2")
    with bookkeeper(database_url) as forgetting, bookkeeper(database_url) as folding:
        assert topics._forget(forgetting, ["b/1"], (), 0) == 1
        folding.execute("SET LOCAL lock_timeout = '30s'")
        assert statistics.fold(folding, idle_s=0) == 0
    with bookkeeper(database_url) as connection:
        assert statistics.fold(connection, idle_s=0) == 1
    after = jobs_of(database_url).statistics()
    assert (set(after.topics), after.queues["brief"].succeeded) == ({"b/2"}, 2)
