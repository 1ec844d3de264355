"""The lease of a worker, turn by turn: what it counts from, and what is done beside it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest
from prometheus_client import REGISTRY

from packhorse.jobs.job import JobState
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.work import heartbeat as module
from packhorse.jobs.work.heartbeat import LeaseHeartbeat, WorkerSettings
from tests.harness.clock import ManualClock
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper, end_leases, jobs_of
from tests.harness.waiting import eventually

SETTINGS = WorkerSettings(lease_s=3600, renewal_s=600, rescue_s=60)


class Kept:
    """A lease whose turns the test takes, with its clock."""

    def __init__(self, url: str, settings: WorkerSettings = SETTINGS) -> None:
        self.url, self.clock, self.told = url, ManualClock(), 0
        self.before: list[Callable[[], None]] = []
        """What happens before each of the next connections is there."""
        self.run = WorkerRun.begin("i1")
        self.heartbeat = LeaseHeartbeat(self.connect, self.run, settings, self.clock, self._tell)

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        if self.before:
            self.before.pop(0)()
        with psycopg.connect(self.url) as connection:
            yield connection

    def later(self, seconds: float) -> float:
        self.clock.advance(seconds)
        return self.heartbeat.turn()

    def is_valid(self) -> bool:
        return self.heartbeat.is_valid(self.clock.monotonic())

    def left(self, run: WorkerRun) -> list[float]:
        """Return for how many seconds the database takes the lease to last."""
        with bookkeeper(self.url) as connection:
            rows = connection.execute(
                "SELECT extract(epoch FROM lease_until - clock_timestamp())::float "
                "FROM jobs.worker WHERE runtime_id = %s",
                (run.runtime_id,),
            )
            return [seconds for (seconds,) in rows]

    def _tell(self) -> None:
        self.told += 1


def test_r28_a_lease_counts_from_before_it_was_asked_for(database_url: str) -> None:
    """The database counts from the moment at which it hears of it, which is later."""
    kept = Kept(database_url)
    kept.before.append(lambda: kept.clock.advance(100))
    kept.heartbeat.turn()
    kept.clock.advance(3499)
    assert kept.is_valid()
    kept.clock.advance(1)
    assert not kept.is_valid()


def test_it_is_renewed_in_time_and_whoever_waits_hears_of_a_new_one(database_url: str) -> None:
    kept = Kept(database_url)
    assert 0 < kept.heartbeat.turn() <= 60
    assert kept.told == 1
    with bookkeeper(database_url) as connection:
        connection.execute("UPDATE jobs.worker SET lease_until = clock_timestamp() + '500 s'")
    kept.later(599)
    assert max(kept.left(kept.run)) < 600, "it is not due"
    assert kept.later(1) > 0
    assert min(kept.left(kept.run)) > 600
    assert kept.told == 1
    kept.later(3600)
    assert (kept.told, kept.is_valid()) == (2, True)
    often = Kept(database_url, replace(SETTINGS, renewal_s=20))
    assert 0 < often.heartbeat.turn() <= 20, "whatever is to be done next"


def test_nobody_elses_lease_is_made_shorter(database_url: str) -> None:
    """The limit of what a clock that was set back may leave is the own lease."""
    other, kept = HandyWorker(database_url), Kept(database_url)
    kept.heartbeat.turn()
    assert min(kept.left(other.run)) > 600


def test_all_lost_jobs_are_rescued_at_once_and_the_lease_is_kept_meanwhile(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RESCUE_BATCH", 2)
    jobs, other, kept = jobs_of(database_url), HandyWorker(database_url, "i2"), Kept(database_url)
    numbers = [jobs.add_job("a").job.number for _ in range(5)]
    assert len(other.claim(5)) == 5
    end_leases(database_url)
    before = REGISTRY.get_sample_value("packhorse_jobs_rescued_total") or 0

    def as_time_goes_by() -> None:
        kept.clock.advance(1000)

    kept.before = [as_time_goes_by] * 8
    kept.heartbeat.turn()
    assert {jobs.get(number).state for number in numbers} == {JobState.QUEUED}
    assert (REGISTRY.get_sample_value("packhorse_jobs_rescued_total") or 0) >= before + 5
    assert kept.told == 1, "the lease was never over"
    assert kept.left(other.run) == [], "who is gone for long is forgotten"


def test_who_may_have_lost_the_lease_rescues_no_further(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every turn of rescue needs the lease, and renewing is first when it may be over."""
    monkeypatch.setattr(module, "_RESCUE_BATCH", 1)
    jobs, other = jobs_of(database_url), HandyWorker(database_url, "i2")
    numbers = [jobs.add_job("a").job.number for _ in range(2)]
    assert len(other.claim(2)) == 2
    end_leases(database_url)
    kept = Kept(database_url, replace(SETTINGS, renewal_s=1e6))  # nothing renews it in between
    kept.before = [lambda: None, lambda: kept.clock.advance(3600)]
    kept.heartbeat.turn()
    assert sorted(jobs.get(number).state for number in numbers) == sorted(
        [JobState.QUEUED, JobState.ACTIVE]
    )


def test_jobs_of_who_left_are_dropped_once_a_minute_and_the_lease_is_kept_meanwhile(
    database_url: str,
) -> None:
    kept, drops = Kept(database_url), list[float]()

    def drop(after_each: Callable[[], None]) -> int:
        drops.append(kept.clock.monotonic())
        kept.clock.advance(3000)
        after_each()
        kept.clock.advance(3000)
        return 0

    kept.heartbeat.drop_departed = drop
    kept.heartbeat.turn()
    kept.later(59)
    assert drops == []
    kept.later(1)
    assert len(drops) == 1
    assert kept.is_valid()
    kept.later(0)
    assert len(drops) == 2, "a minute has gone by"
    kept.later(0)
    assert len(drops) == 3


def test_an_error_of_the_database_ends_no_heartbeat(database_url: str) -> None:
    def refuse() -> None:
        raise psycopg.errors.ReadOnlySqlTransaction("a standby")

    kept = Kept(database_url)
    kept.before = [refuse]
    kept.heartbeat.start()
    kept.clock.until_waited_on()
    assert kept.told == 0
    kept.clock.advance(1)
    eventually(kept.is_valid, what="it has tried again after a second")
    kept.heartbeat.stop(120)
    assert kept.heartbeat.failure() is None
