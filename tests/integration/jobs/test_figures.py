"""Statistics and what waits for a consumer, as they are read."""

from datetime import timedelta

import pytest

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.filters import JobFilter
from packhorse.jobs.ledger.changing import JobChange
from packhorse.jobs.ledger.figures import read_statistics
from packhorse.jobs.queue import QueueConfiguration, QueueType, UnknownQueue
from packhorse.jobs.store.given import LEADER
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper, jobs_of


def test_figures_of_queues_and_topics_and_all(database_url: str) -> None:
    jobs = jobs_of(database_url)
    fast = QueueConfiguration("fast", ("f/**",), type=QueueType.UNORDERED, retry_delay_s=3600.0)
    jobs.put_queue(fast)
    one, other = HandyWorker(database_url, "i1"), HandyWorker(database_url, "i2")
    for topic in ("a", "a", "b", "f/1"):
        jobs.add_job(topic)
    jobs.add_job("f/1", delay=timedelta(hours=1))
    assert [one.do(), other.do(Outcome.CANCEL)]
    [claimed] = one.claim(queue="fast")
    jobs.bulk(JobChange.STOP, JobFilter(topic="b"))
    one.finish(claimed, Outcome.FAILED)
    assert one.claim(queue="fast") == []  # it waits before it is tried again
    figures = jobs.statistics()
    assert (figures.all.queued, figures.all.delayed, figures.all.active) == (2, 2, 0)
    assert (figures.all.succeeded, figures.all.errors, figures.all.stopped) == (1, 1, 1)
    assert (figures.all.attempts, figures.all.failed_attempts) == (3, 1)
    assert figures.all.finished == 3
    assert figures.all.cancelled == 2
    assert figures.topics["a"].finished == 2
    assert figures.topics["b"].stopped == 1
    assert figures.topics["f/1"].queued == figures.queues["fast"].queued == 2
    assert figures.queues["main"].finished == 3
    assert figures.queues["fast"].average_processing_s is not None
    assert figures.queues["fast"].average_processing_s >= 0
    assert list(figures.queues) == ["fast", "main"]
    assert figures.all.last_finished_at is not None
    assert figures.all.last_finished_at <= figures.at


def test_a_queue_that_did_nothing_is_there_with_nothing(database_url: str) -> None:
    figures = jobs_of(database_url).statistics()
    assert list(figures.queues) == ["main"]
    assert figures.queues["main"] == figures.all
    assert (figures.all.average_waiting_s, figures.all.since, figures.topics) == (None, None, {})


def test_what_was_done_survives(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    for _ in range(3):
        jobs.add_job("a")
    worker.do()
    worker.do()
    assert jobs_of(database_url).statistics().queues["main"].succeeded == 2
    assert jobs.statistics().topics["a"].queued == 1


def test_counting_is_bounded_and_says_so(database_url: str) -> None:
    jobs = jobs_of(database_url)
    for topic in ("a", "a", "a", "b"):
        jobs.add_job(topic)
    with bookkeeper(database_url) as connection:
        few = read_statistics(connection, most=2)
    assert (few.topics["a"].queued, few.topics["a"].has_more) == (2, True)
    assert (few.topics["b"].queued, few.topics["b"].has_more) == (1, False)
    assert (few.all.queued, few.all.has_more, few.queues["main"].has_more) == (3, True, True)
    assert (jobs.statistics().all.queued, jobs.statistics().all.has_more) == (4, False)


def test_delayed_jobs_that_are_not_counted_may_be_of_any_topic(database_url: str) -> None:
    jobs = jobs_of(database_url)
    for topic in ("a", "b", "c"):
        jobs.add_job(topic, delay=timedelta(hours=1))
    with bookkeeper(database_url) as connection:
        few = read_statistics(connection, most=2)
    assert (few.all.delayed, few.all.has_more) == (2, True)
    assert all(one.has_more for one in few.topics.values())


def test_topics_that_nobody_does_are_seen(database_url: str) -> None:
    jobs = jobs_of(database_url)
    first = jobs.add_job("lonely/1").job
    jobs.add_job("lonely/1")
    jobs.add_job("done/1")
    jobs.add_job("done/except")
    jobs.add_job("later", delay=timedelta(hours=1))
    places = {"i1": HandledTopics(("done/1",)), "i2": HandledTopics(("other",))}
    waiting = jobs.unconsumed(places)
    assert [(one.topic, one.queue, one.waiting) for one in waiting] == [
        ("done/except", "main", 1),
        ("lonely/1", "main", 2),
    ]
    assert waiting[1].since == first.ready_at
    assert jobs.unconsumed({"i1": HandledTopics(("**",))}) == ()
    assert [one.topic for one in jobs.unconsumed({})] == ["done/1", "done/except", "lonely/1"]


def test_what_is_to_be_tried_again_later_does_not_say_since_when(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    failed = jobs.add_job("a").job.number
    waits = jobs.add_job("a").job
    assert worker.do(Outcome.FAILED) == failed
    [found] = jobs.unconsumed({})
    assert (found.waiting, found.since) == (1, waits.ready_at)


def test_jobs_whose_only_instance_does_not_do_them_are_seen(database_url: str) -> None:
    jobs = jobs_of(database_url)
    jobs.put_queue(
        QueueConfiguration("mine", ("own/*",), type=QueueType.UNORDERED, prefer_creator=True)
    )
    HandyWorker(database_url, "tests")  # has a lease, so that its own job is reserved for it
    given = {on: jobs.add_job("a", only_on=on).job for on in ("gone", "i1", "i2", LEADER)}
    jobs.add_job("a", only_on="gone")
    jobs.add_job("a", only_on="gone", delay=timedelta(hours=1))
    jobs.add_job("own/1")
    jobs.add_job("b", only_on="gone")
    places = {"i1": HandledTopics(("a", "own/*")), "i2": HandledTopics(("b",))}
    found = jobs.unconsumed(places)
    assert [(one.topic, one.only_on, one.queue, one.waiting) for one in found] == [
        ("a", "gone", "main", 2),
        ("a", "i2", "main", 1),
        ("b", "gone", "main", 1),
    ]
    assert found[0].since == given["gone"].ready_at
    nobody = [(one.topic, one.only_on, one.waiting) for one in jobs.unconsumed({})]
    assert nobody == [("a", "", 5), ("b", "", 1), ("own/1", "", 1)], "each once"


def test_an_active_job_does_not_wait_for_a_consumer(database_url: str) -> None:
    jobs = jobs_of(database_url)
    jobs.add_job("a")
    HandyWorker(database_url).claim()
    assert jobs.unconsumed({}) == ()


def test_queues_are_changed_through_the_facade(database_url: str) -> None:
    jobs = jobs_of(database_url)
    made = jobs.put_queue(QueueConfiguration("q", ("q/**",)), version=0)
    suspended = jobs.suspend_queue("q", made.version)
    assert (suspended.suspended, suspended.version > made.version) == (True, True)
    assert not jobs.resume_queue("q").suspended
    assert [queue.name for queue in jobs.queues()] == ["main", "q"]
    jobs.add_job("q/1")
    jobs.remove_queue("q")
    assert jobs.find().jobs[0].queue == "main"
    with pytest.raises(UnknownQueue):
        jobs.queue("q")
