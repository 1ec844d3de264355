"""How attempts end in the database, and what is counted and reported."""

import logging
from datetime import timedelta

import psycopg
import pytest

from packhorse.jobs.channels import JOBS
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobLost, JobProgress, JobState
from packhorse.jobs.store import finishing, leases, statistics
from packhorse.jobs.store.claims import check
from packhorse.jobs.store.notes import MOST_LINES, Notes, note
from packhorse.jobs.store.rescue import forget_workers, rescue
from tests.harness.jobs.store import Store


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def test_the_history_of_a_job(store: Store) -> None:
    store.add("free/a", id="x", properties={"n": 1})
    worker = store.worker()
    [claimed] = worker.claim("free")
    ending = worker.end(claimed, message="done")
    job = store.job(claimed.job.number)
    assert (ending.state, job.state, job.result_message) == (job.state, JobState.SUCCEEDED, "done")
    assert (job.instance, job.attempts, job.queue, job.max_retries) == ("i1", 1, "free", 2)
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.ready_at <= job.started_at <= job.finished_at


def test_an_attempt_ends_once(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    assert worker.end(claimed).state is JobState.SUCCEEDED
    assert worker.end(claimed).state is None


def test_a_paused_worker_cannot_end_what_another_took_over(store: Store) -> None:
    store.add("free/a")
    paused, other = store.worker("i1"), store.worker("i2")
    [old] = paused.claim("free")
    paused.lose_lease()
    [rescued] = store.rescue()
    assert (rescued.held.instance, rescued.state) == ("i1", JobState.QUEUED)
    [new] = other.claim("free")
    assert (new.job.retry, new.job.attempts) == (True, 2)
    assert [one.outcome for one in new.job.past_attempts] == ["LOST"]
    assert paused.end(old).state is None
    assert paused.renew() == []
    assert other.end(new).state is JobState.SUCCEEDED


def test_a_worker_cannot_end_an_attempt_that_it_lost_and_took_again(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [old] = worker.claim("free")
    worker.lose_lease()
    store.rescue()
    worker.renew()
    [new] = worker.claim("free")
    assert worker.end(old).state is None
    assert worker.end(new).state is JobState.SUCCEEDED


def test_r28_a_clock_that_was_set_back_makes_no_lease_longer(store: Store) -> None:
    store.add("free/a")
    gone, _ = store.worker("i1"), store.worker("i2")
    gone.claim("free")
    left = "SELECT lease_until - clock_timestamp() FROM jobs.worker ORDER BY instance"
    with store.transaction() as connection:
        connection.execute(
            "UPDATE jobs.worker SET lease_until = lease_until + interval '1 hour' "
            "WHERE runtime_id = %s",
            (gone.run.runtime_id,),
        )
    assert store.rescue() == []
    [[of_gone], [of_live]] = store.rows(left)
    assert of_live < of_gone < timedelta(seconds=leases.LEASE_S)
    with store.transaction() as connection:
        [rescued] = rescue(connection, lease_s=0)
    assert rescued.held.instance == "i1"


def test_a_job_that_ends_its_process_is_given_up(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    number = store.add("free/a").job.number
    for attempt in range(1, 4):
        worker = store.worker(f"i{attempt}")
        [claimed] = worker.claim("free")
        assert claimed.job.attempts == attempt
        worker.lose_lease()
        with caplog.at_level(logging.WARNING):
            [rescued] = store.rescue()
    assert rescued.state is store.job(number).state is JobState.GIVEN_UP
    [record] = [one for one in caplog.records if "was given up" in one.getMessage()]
    assert f"job {number} of free/a was given up after 3 attempts: " in record.getMessage()
    assert (record.job, record.attempts, record.how) == (number, 3, "LOST")  # type: ignore[attr-defined]


def test_failures_are_tried_again_later_and_given_up(database_url: str) -> None:
    store = Store(database_url, retry_delay_s=3600.0)
    number = store.add("free/a").job.number
    worker = store.worker()
    for attempt in range(1, 4):
        [claimed] = worker.claim("free")
        ending = worker.end(claimed, Outcome.FAILED, message=f"no {attempt}")
        assert worker.claim("free") == []
        if attempt < 3:
            assert ending.state is JobState.QUEUED
            store.pass_time(3600)
    job = store.job(number)
    assert (ending.state, job.state, job.attempts) == (job.state, JobState.GIVEN_UP, 3)
    assert [one.reason for one in job.past_attempts] == ["no 1", "no 2", "no 3"]


def test_a_time_out_is_a_failure(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    with store.transaction() as holding:
        check(holding, claimed.claim)
        with store.transaction() as connection:
            assert finishing.time_out(connection, claimed.claim, "long").state is JobState.ACTIVE
    with store.transaction() as connection:
        assert finishing.time_out(connection, claimed.claim, "long").state is JobState.QUEUED
    assert worker.end(claimed).state is None
    assert [one.outcome for one in store.job(claimed.job.number).past_attempts] == ["TIMED_OUT"]


def test_what_is_given_back_is_not_counted(store: Store) -> None:
    store.add("free/a"), store.add("free/a")
    worker = store.worker()
    claimed = worker.claim("free", 2)
    with store.transaction() as connection:
        finishing.release(connection, [claimed[0].claim], "ends", begun=False)
        finishing.release(connection, [claimed[1].claim], "ends")
        leases.leave(connection, worker.run)
    jobs = [one.job for one in store.worker("i2").claim("free", 2)]
    assert [(job.attempts, job.retry) for job in jobs] == [(1, False), (1, True)]
    assert store.rescue() == []


def test_a_stop_is_seen_by_whoever_has_the_job(store: Store) -> None:
    number = store.add("free/a", "me", id="x").job.number
    worker = store.worker()
    [claimed] = worker.claim("free")
    store.add("free/a", "me", id="x")
    waits = store.add("free/b").job.number
    with store.transaction() as connection:
        assert finishing.request_stop(connection, [number, waits, 999]) == [number]
    assert [one.stop_requested for one in worker.renew()] == [True]
    assert worker.topics("free", topics=["free/b"]) == ["free/b"]
    assert {one.number: one.stop_requested for one in worker.renew()} == {
        number: True,
        waits: False,
    }
    assert worker.end(claimed, Outcome.CANCEL).state is JobState.STOPPED


def test_jobs_that_wait_can_be_ended(store: Store) -> None:
    first, second = (store.add("free/a").job.number for _ in range(2))
    worker = store.worker()
    worker.claim("free")
    with store.transaction() as connection:
        ended = finishing.end_waiting(connection, [first, second], JobState.DROPPED, "old")
    assert [(job.number, job.state, job.result_message) for job in ended] == [
        (second, JobState.DROPPED, "old")
    ]
    assert store.rows("SELECT dropped FROM jobs.statistics WHERE instance = ''") == [(1,)]


def test_notes_are_stored_while_the_attempt_is_held(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    assert claimed.job.started_at is not None
    eta = claimed.job.started_at + timedelta(minutes=1)
    notes = Notes(
        JobProgress(3, 9, eta, "half\0"),
        [f"line {n}" for n in range(MOST_LINES + 5)],
        {"k": [1]},
    )
    with store.transaction() as holding:
        check(holding, claimed.claim)
        for more in (notes, Notes(log=["last\ud800"], extra={"l": 2})):
            with store.transaction() as connection:
                assert note(connection, [(claimed.claim, more)]) == set()
    job = store.job(claimed.job.number)
    assert (job.progress.step, job.progress.steps, job.progress.message) == (3, 9, "half\ufffd")
    assert job.progress.eta == eta
    assert (len(job.log), job.log[-1], job.log[0]) == (MOST_LINES, "last?", "line 6")
    assert job.extra == {"k": [1], "l": 2}
    worker.end(claimed)
    with store.transaction() as connection:
        assert note(connection, [(claimed.claim, notes)]) == {claimed.claim}


def test_an_effect_in_the_ending_transaction_happens_once(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    with store.transaction() as connection:
        connection.execute("RESET ROLE")
        connection.execute("CREATE TABLE effect (number bigint)")
    for _ in range(2):
        with store.transaction() as connection:
            connection.execute("RESET ROLE")
            connection.execute("INSERT INTO effect VALUES (%s)", (claimed.job.number,))
            [ending] = finishing.finish(
                connection, [finishing.Ended(claimed.claim, Result(Outcome.OK))]
            )
            if ending.state is None:
                connection.rollback()
    assert store.rows("SELECT count(*) FROM effect") == [(1,)]


def test_history_may_be_kept_of_those_with_an_id_alone(database_url: str) -> None:
    store = Store(database_url, keep_history=False)
    store.add("free/a"), store.add("free/a", id="x"), store.add("free/a")
    worker = store.worker()
    first, second, third = worker.claim("free", 3)
    worker.end(first), worker.end(second), worker.end(third, Outcome.CANCEL)
    assert store.rows("SELECT id, state FROM jobs.finished ORDER BY number") == [
        ("x", "SUCCEEDED"),
        (None, "ERROR"),
    ]


def test_statistics_survive_and_are_folded_when_an_instance_is_gone(store: Store) -> None:
    for instance in ("i1", "i2"):
        store.add("free/a")
        worker = store.worker(instance)
        worker.end(worker.claim("free")[0])
        worker.lose_lease()
    with store.transaction() as connection:
        assert forget_workers(connection, after_s=0.0) == 2
        assert statistics.fold(connection, idle_s=0.0) == 2
        assert statistics.fold(connection, idle_s=0.0) == 0
    [row] = store.rows("SELECT queue, topic, instance, succeeded, attempts FROM jobs.statistics")
    assert row == ("free", "free/a", "", 2, 2)


def test_old_statistics_are_folded_once_their_run_is_forgotten(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    worker.end(worker.claim("free")[0])
    worker.lose_lease()
    with store.transaction() as connection:
        connection.execute(
            "UPDATE jobs.statistics SET since = '2020-01-01', last_started_at = '2020-01-01', "
            "last_finished_at = '2020-01-01'"
        )
        assert [forget_workers(connection, after_s=0.0) for _ in range(2)] == [1, 0]
    assert store.rows("SELECT instance, succeeded FROM jobs.statistics") == [("", 1)]


@pytest.mark.parametrize(("topic", "outcome"), [("line/a", "OK"), ("free/a", "FAILED")])
def test_workers_are_notified_of_what_may_be_begun_then(
    store: Store, topic: str, outcome: str
) -> None:
    store.add(topic)
    worker = store.worker()
    [claimed] = worker.claim(topic.partition("/")[0])
    with psycopg.connect(store.url, autocommit=True) as listening:
        listening.execute(f"LISTEN {JOBS}")
        worker.end(claimed, Outcome(outcome))
        assert list(listening.notifies(timeout=120, stop_after=1))


def test_what_is_reported(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    worker.end(worker.claim("free")[0], Outcome.FAILED, retry_delay=timedelta(0))
    worker.end(worker.claim("free")[0])
    reported = store.rows("SELECT topic, application, echo FROM jobs.event ORDER BY number")
    kinds = ["ADDED", "START", "FAILED", "START", "FINISHED"]
    assert reported == [
        (f"packhorse/job/{kind}", "tests" if kind == "ADDED" else "i1", True) for kind in kinds
    ]


def test_a_lost_attempt_holds_nothing(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    worker.end(claimed)
    with store.transaction() as connection, pytest.raises(JobLost, match="another attempt"):
        check(connection, claimed.claim)
