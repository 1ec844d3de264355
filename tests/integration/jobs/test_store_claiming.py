"""Claims: who gets which job, and when."""

from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.job import JobLost, JobProgress, JobState
from packhorse.jobs.store import claims
from packhorse.jobs.store import given as given_jobs
from packhorse.jobs.store.claims import Claim, check
from packhorse.jobs.store.given import LEADER
from packhorse.jobs.store.leases import leave as give_back_lease
from packhorse.jobs.store.notes import Notes, note
from packhorse.jobs.store.queues import suspend_queue
from packhorse.jobs.work.running_jobs import RunningJobs, Slots
from packhorse.jobs.work.worker_store import WorkerStore
from tests.harness.jobs.store import Store, numbers
from tests.harness.waiting import eventually


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def test_the_highest_priority_then_the_oldest(store: Store) -> None:
    given = [store.add("free/a", priority=p).job.number for p in (0, 5, -3, 5)]
    claimed = store.worker().claim("free", 4)
    assert numbers(claimed) == [given[1], given[3], given[0], given[2]]
    assert claimed[0].job.state is JobState.ACTIVE
    assert (claimed[0].job.attempts, claimed[0].job.instance) == (1, "i1")


def test_topics_take_turns(store: Store) -> None:
    for topic in ("turns/a", "turns/a", "turns/a", "turns/b", "turns/c"):
        store.add(topic)
    worker = store.worker()
    assert worker.topics("turns", 1, turn="turns/a") == ["turns/b"]
    assert worker.topics("turns", 3, turn="turns/b") == ["turns/c", "turns/a", "turns/a"]


def test_of_very_many_topics_the_first_in_order_is_found(store: Store) -> None:
    for number in range(30):
        store.add(f"free/{number:02}"), store.add(f"turns/{number:02}")
    first = store.add("free/last", priority=1).job.number
    worker = store.worker()
    assert numbers(worker.claim("free")) == [first]
    assert worker.topics("turns", turn="turns/25") == ["turns/26"]


def test_only_topics_that_were_asked_for_are_claimed(store: Store) -> None:
    for queue in ("free", "line", "turns"):
        store.add(f"{queue}/a"), store.add(f"{queue}/b")
        assert store.worker().topics(queue, 2, topics=[f"{queue}/b"], unconsumed=()) == (
            [] if queue == "line" else [f"{queue}/b"]
        )


def test_an_attempt_begins_without_the_progress_of_the_last_one(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    with store.transaction() as connection:
        note(connection, [(claimed.claim, Notes(JobProgress(message="half")))])
    worker.end(claimed, Outcome.FAILED)
    assert store.job(claimed.job.number).progress.message == "half"
    store.pass_time(10)
    assert [one.job.progress for one in worker.claim("free")] == [JobProgress()]


def test_a_line_has_one_at_a_time_in_the_whole_cluster(store: Store) -> None:
    first, second = (store.add("line/a", priority=p).job.number for p in (0, 9))
    one, two = store.worker("i1"), store.worker("i2")
    [claimed] = one.claim("line", 5)
    assert (claimed.job.number, two.claim("line")) == (first, [])
    one.end(claimed)
    assert numbers(two.claim("line")) == [second]


def test_a_line_is_claimed_by_one_while_another_is_about_to(store: Store) -> None:
    store.add("line/a"), store.add("line/a")
    one, two = store.worker("i1"), store.worker("i2")
    with store.transaction() as connection:
        assert len(one.claim_with(connection, "line")) == 1
        assert two.claim("line") == []
    assert two.claim("line") == []


def test_a_line_that_changes_between_the_look_and_the_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("line/a"), store.add("line/a")
    one, two = store.worker("i1"), store.worker("i2")
    claim_heads = claims._claim_heads

    def late(*given: object) -> list[claims.Claimed]:
        monkeypatch.setattr(claims, "_claim_heads", claim_heads)
        assert len(one.claim("line")) == 1
        return claim_heads(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(claims, "_claim_heads", late)
    assert two.claim("line") == []


def test_a_retry_holds_its_line_and_a_job_for_later_does_not(database_url: str) -> None:
    store = Store(database_url, retry_delay_s=600.0)
    later = store.add("line/a", delay=timedelta(hours=1)).job.number
    first, second = (store.add("line/a").job.number for _ in range(2))
    worker = store.worker()
    [claimed] = worker.claim("line")
    assert claimed.job.number == first
    worker.end(claimed, Outcome.FAILED)
    assert worker.claim("line") == []
    store.pass_time(600)
    [claimed] = worker.claim("line")
    assert (claimed.job.number, claimed.job.attempts, claimed.job.retry) == (first, 2, True)
    worker.end(claimed)
    store.pass_time(3600)
    assert numbers(worker.claim("line")) == [later]
    assert second > later


def test_topics_that_nobody_consumes_do_not_hold_a_line(store: Store) -> None:
    store.add("line/a"), store.add("line/b")
    worker = store.worker()
    assert worker.claim("line", topics=["line/b"]) == []
    assert worker.claim("line", topics=["line/b"], unconsumed=["line/c"]) == []
    assert worker.topics("line", topics=["line/b"], unconsumed=["line/a"]) == ["line/b"]


@pytest.mark.parametrize("queue", ["free", "line", "turns"])
def test_only_the_instance_that_is_meant(store: Store, queue: str) -> None:
    one, two, leader = store.worker("i1"), store.worker("i2"), store.worker("i3", leads=True)
    for only_on, others, meant in (("i2", (one, leader), two), (LEADER, (one, two), leader)):
        store.add(f"{queue}/a", only_on=only_on)
        assert [other.claim(queue) for other in others] == [[], []]
        [claimed] = meant.claim(queue)
        assert claimed.job.only_on == only_on
        meant.end(claimed)


@pytest.mark.parametrize("queue", ["free", "line"])
def test_who_leads_one_topic_does_no_other_topics_jobs_of_the_leader(
    store: Store, queue: str
) -> None:
    store.add(f"{queue}/a", only_on=LEADER)
    leader = store.worker()
    assert leader.claim(queue, led=[f"{queue}/b"]) == []
    assert len(leader.claim(queue, led=[f"{queue}/a"])) == 1


def test_the_creator_is_preferred_for_a_while(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_jobs, "PREFERENCE_S", 3600.0)
    store = Store(database_url, prefer_creator=True)
    creator, other = store.worker("i1"), store.worker("i2")
    store.add("free/a", "i1")
    assert other.claim("free") == []
    assert creator.claim("free")[0].job.only_on is None
    store.add("free/a", "i1"), store.add("free/a", "somebody")
    assert len(other.claim("free", 5)) == 1
    store.pass_time(3600)
    assert len(other.claim("free", 5)) == 1


def test_what_is_delayed_is_claimed_when_it_is_due(store: Store) -> None:
    store.add("free/a", delay=timedelta(minutes=1))
    worker = store.worker()
    assert worker.claim("free") == []
    store.pass_time(61)
    assert len(worker.claim("free")) == 1


def test_what_may_be_claimed_later_is_known_to_be_waiting(store: Store) -> None:
    worker = store.worker()
    store.add("line/a")
    [claimed] = worker.claim("line")
    assert not worker.sees_waiting("line"), "it is under way"
    store.add("line/a")
    assert (worker.claim("line"), worker.sees_waiting("line")) == ([], True)
    worker.end(claimed)
    for topic in ("free/a", "turns/a"):
        store.add(topic, delay=timedelta(minutes=1))
    assert worker.claim("free") == worker.claim("turns") == []
    assert worker.sees_waiting("free")
    assert worker.sees_waiting("turns")


def test_suspended_queues_begin_nothing(store: Store) -> None:
    store.add("free/a"), store.add("line/a")
    worker = store.worker()
    for queue in ("free", "line"):
        with store.transaction() as connection:
            suspend_queue(connection, queue, suspended=True)
        assert worker.claim(queue) == []
        with store.transaction() as connection:
            suspend_queue(connection, queue, suspended=False)
        assert len(worker.claim(queue)) == 1


def test_without_a_lease_nothing_is_claimed(store: Store) -> None:
    queues = ("free", "line", "turns")
    for queue in queues:
        store.add(f"{queue}/a")
    worker, _ = store.worker(), store.worker("another that has one")
    worker.lose_lease()
    assert [worker.claim(queue) for queue in queues] == [[], [], []]
    worker.renew()
    assert [len(worker.claim(queue)) for queue in queues] == [1, 1, 1]


def test_a_run_has_its_own_lease_and_its_own_attempts_alone(store: Store) -> None:
    for _ in range(3):
        store.add("free/a")
    stays, leaves = store.worker("i1"), store.worker("i2")
    [kept], [left] = stays.claim("free"), leaves.claim("free")
    assert [one.number for one in stays.renew()] == [kept.job.number]
    with store.transaction() as connection:
        give_back_lease(connection, leaves.run)
    assert [one.held.number for one in store.rescue()] == [left.job.number]
    assert len(stays.claim("free")) == 1


def test_what_others_are_claiming_is_passed_over(store: Store) -> None:
    given = [store.add("free/a").job.number for _ in range(3)]
    with store.transaction() as connection:
        assert numbers(store.worker("i1").claim_with(connection, "free", 2)) == given[:2]
        assert numbers(store.worker("i2").claim("free", 2)) == given[2:]


def test_a_worker_that_is_paused_while_it_claims_keeps_nothing_for_longer_than_its_lease(
    store: Store,
) -> None:
    """In a pipeline it is active to the server, whose limit on idle transactions never comes."""
    for topic in ("free/a", "line/a"):
        store.add(topic)
    paused, other = store.worker("i1"), store.worker("i2")
    claiming = WorkerStore(paused.run, RunningJobs(Slots(1, 1)))
    with (
        suppress(psycopg.OperationalError),
        psycopg.connect(store.url, autocommit=True) as connection,
        connection.pipeline(),
        connection.transaction(),
    ):
        claiming.begin(connection)
        assert len(paused.claim_with(connection, "free")) == 1
        assert len(paused.claim_with(connection, "line")) == 1
        assert other.claim("free") == other.claim("line") == []
        paused.lose_lease()
        assert store.rescue() == []
        eventually(lambda: other.claim("free"), what="its session has ended")
        assert len(other.claim("line")) == 1
    assert connection.closed


def test_a_held_attempt_is_nobody_elses_until_the_transaction_ends(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    with store.transaction() as connection:
        check(connection, claimed.claim)
        worker.lose_lease()
        assert store.rescue() == []
        assert worker.end(claimed, wait=False).state is JobState.ACTIVE
    assert [one.held.number for one in store.rescue()] == [claimed.job.number]
    with pytest.raises(JobLost), store.transaction() as connection:
        check(connection, claimed.claim)


def test_a_claim_has_one_epoch(store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    wrong = Claim(claimed.job.number, worker.run.runtime_id, claimed.claim.epoch + 1)
    with pytest.raises(JobLost), store.transaction() as connection:
        check(connection, wrong)
