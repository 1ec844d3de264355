"""Stopping, retrying and removing jobs, wherever they are, one or many."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import Connection

from packhorse.jobs.channels import JOBS
from packhorse.jobs.consumer import Outcome
from packhorse.jobs.filters import JobFilter, StateGroup
from packhorse.jobs.job import Job, JobState, UnknownJob, WrongState
from packhorse.jobs.ledger import changing, finding
from packhorse.jobs.ledger.changing import BulkResult, JobChange
from packhorse.jobs.ledger.pages import InvalidPage
from packhorse.jobs.store.adding import AddResult
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper, jobs_of, store_finished

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def reported(url: str) -> list[tuple[str, int]]:
    """The notifications, in order."""
    with bookkeeper(url) as connection:
        rows = connection.execute(
            "SELECT topic, properties ->> 'number' FROM jobs.event ORDER BY number"
        ).fetchall()
    return [(topic.removeprefix("packhorse/job/"), int(number)) for topic, number in rows]


def test_a_waiting_job_is_stopped_at_once(database_url: str) -> None:
    jobs = jobs_of(database_url)
    number = jobs.add_job("a").job.number
    stopped = jobs.stop(number)
    assert (stopped.state, stopped.finished_at is not None) == (JobState.STOPPED, True)
    assert HandyWorker(database_url).claim() == []
    assert reported(database_url) == [("ADDED", number), ("CANCELLED", number)]


def test_stopping_reaches_another_instance(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    number = jobs.add_job("a").job.number
    [claimed] = worker.claim()
    with psycopg.connect(database_url, autocommit=True) as listening:
        listening.execute(f"LISTEN {JOBS}")
        assert jobs.stop(number).stop_requested
        assert list(listening.notifies(timeout=120, stop_after=1)), "workers were notified"
    assert [holding.stop_requested for holding in worker.renew()] == [True]
    assert worker.finish(claimed, Outcome.FAILED).state is JobState.STOPPED
    with pytest.raises(WrongState, match=f"job {number} is STOPPED: only a job that is QUEUED"):
        jobs.stop(number)


def test_a_stopped_job_that_was_given_again_does_not_run_once_more(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    number = jobs.add_job("a", id="1").job.number
    [claimed] = worker.claim()
    assert jobs.add_job("a", id="1").verdict is AddResult.REACTIVATED
    jobs.stop(number)
    assert worker.finish(claimed).state is JobState.SUCCEEDED
    assert worker.claim() == []


def test_a_job_that_ends_while_it_is_removed_is_returned_as_it_was(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)

    def look_before_its_end(connection: Connection, number: int) -> Job:
        job = finding.get(connection, number)
        worker.do()
        return job

    monkeypatch.setattr(changing, "get", look_before_its_end)
    for even_active in (False, True):
        number = jobs.add_job("a").job.number
        removed = jobs.remove(number, even_active=even_active)
        assert (removed.number, removed.state) == (number, JobState.QUEUED)
        with pytest.raises(UnknownJob):
            jobs.get(number)


def test_every_finished_job_can_be_retried(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    for state in (state for state in JobState if state.final):
        number = store_finished(database_url, NOON, state, properties={"a": 1})
        again = jobs.retry(number)
        assert (again.number, again.state, again.finished_at) == (number, JobState.QUEUED, None)
        assert (again.attempts, again.properties) == (0, {"a": 1})
        with pytest.raises(WrongState, match="only a job that is finished can be retried"):
            jobs.retry(number)
        assert worker.do() == number
        assert jobs.get(number).state is JobState.SUCCEEDED


def test_a_job_that_was_given_up_has_all_its_attempts_again(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    number = jobs.add_job("a", max_retries=0).job.number
    worker.do(Outcome.FAILED)
    assert jobs.get(number).state is JobState.GIVEN_UP
    again = jobs.retry(number)
    assert (again.retry, again.attempts) == (True, 0)
    assert worker.do(Outcome.FAILED) == number
    assert jobs.get(number).state is JobState.GIVEN_UP


def test_a_waiting_job_that_is_removed_was_dropped(database_url: str) -> None:
    jobs = jobs_of(database_url)
    number = jobs.add_job("a").job.number
    assert jobs.remove(number).state is JobState.DROPPED
    assert jobs.get(number).state is JobState.DROPPED
    assert jobs.remove(number).state is JobState.DROPPED  # now it is history, and forgotten
    with pytest.raises(UnknownJob):
        jobs.get(number)
    with pytest.raises(UnknownJob):
        jobs.remove(number)
    assert reported(database_url) == [("ADDED", number), ("REMOVED", number), ("REMOVED", number)]


def test_the_id_of_a_forgotten_job_is_free(database_url: str) -> None:
    number = store_finished(database_url, NOON, topic="a", id="1")
    jobs = jobs_of(database_url, "somebody else")
    assert jobs.add_job("a", id="1").verdict is AddResult.EXISTING
    jobs.remove(number)
    added = jobs.add_job("a", id="1")
    assert (added.verdict, added.job.number > number) == (AddResult.ADDED, True)


def test_an_active_job_is_only_taken_away_on_demand(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    number = jobs.add_job("a").job.number
    [claimed] = worker.claim()
    with pytest.raises(WrongState, match="is ACTIVE: stop it first"):
        jobs.remove(number)
    assert jobs.remove(number, even_active=True).state is JobState.DROPPED
    assert worker.renew() == []
    assert worker.finish(claimed).state is None, "its consumer can't finish it any more"
    assert jobs.get(number).state is JobState.DROPPED
    assert jobs.statistics().all.dropped == 1


def test_an_abandoned_job_that_is_retried_is_not_the_old_attempts(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    number = jobs.add_job("a").job.number
    [first] = worker.claim()
    jobs.remove(number, even_active=True)
    jobs.retry(number)
    assert worker.finish(first).state is None
    [second] = worker.claim()
    assert worker.finish(first).state is None
    assert worker.finish(second).state is JobState.SUCCEEDED


def many(url: str, count: int) -> list[int]:
    jobs = jobs_of(url)
    return [jobs.add_job(f"t/{n % 2}", {"n": n}).job.number for n in range(count)]


def test_all_that_a_filter_means_is_stopped(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    numbers = many(database_url, 12)
    worker.claim(2)
    chosen = JobFilter(topic="t/0", templates=[{">=n": 4}])
    assert jobs.bulk(JobChange.STOP, chosen) == BulkResult(changed=4, passed_over=0, after=None)
    ended = jobs.find(JobFilter(group=StateGroup.STOPPED)).jobs
    assert {job.number for job in ended} == {numbers[n] for n in (4, 6, 8, 10)}
    assert jobs.bulk(JobChange.STOP, JobFilter()).changed == 8
    active = jobs.find(JobFilter(group=StateGroup.ACTIVE)).jobs
    assert [job.stop_requested for job in active] == [True, True]


def test_a_bulk_change_goes_on_where_it_ended(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse.jobs.ledger.changing._BATCH", 4)
    jobs = jobs_of(database_url)
    many(database_url, 10)
    for limit in (1, 3, 10, 100):
        for what, left in ((JobChange.STOP, 0), (JobChange.RETRY, 10)):
            results = [jobs.bulk(what, JobFilter(topic="t/*"), limit=limit)]
            while (after := results[-1].after) is not None:
                more = jobs.bulk(what, JobFilter(topic="t/*"), limit=limit, after=after)
                results.append(more)
            assert sum(result.changed for result in results) == 10
            assert all(result.changed <= limit for result in results)
            assert jobs.count(JobFilter(group=StateGroup.QUEUED)) == left


def test_removing_all_keeps_what_it_drops_in_history(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    waiting = many(database_url, 3)
    old = [store_finished(database_url, NOON + timedelta(hours=n)) for n in range(3)]
    worker.claim(1)
    assert jobs.bulk(JobChange.REMOVE, JobFilter(), limit=2) == BulkResult(2, 0, jobs_after(old[1]))
    result = jobs.bulk(JobChange.REMOVE, JobFilter(), after=jobs_after(old[1]))
    assert (result.changed, result.after) == (3, None)
    left = {job.number: job.state for job in jobs.find().jobs}
    assert left == {
        waiting[0]: JobState.ACTIVE,
        waiting[1]: JobState.DROPPED,
        waiting[2]: JobState.DROPPED,
    }


def jobs_after(number: int) -> str:
    return f"h-{int((NOON + timedelta(hours=1)).timestamp()) * 1_000_000}-{number}"


def test_a_bulk_change_is_bounded(database_url: str) -> None:
    with pytest.raises(InvalidPage, match="1 to 100000"):
        jobs_of(database_url).bulk(JobChange.STOP, JobFilter(), limit=1_000_000)
