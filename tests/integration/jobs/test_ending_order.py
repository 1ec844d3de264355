"""Ending jobs with notes locks them in the order of their numbers, as whoever stops many does."""

from concurrent.futures import ThreadPoolExecutor

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobState
from packhorse.jobs.store.finishing import Ended, Ending, finish, request_stop
from packhorse.jobs.store.notes import Notes
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.store import Store
from tests.harness.jobs.stored import bookkeeper
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually


def test_who_ends_and_who_stops_do_not_wait_for_each_other(database_url: str) -> None:
    Store(database_url).add("free/a")
    Store(database_url).add("free/a")
    worker = HandyWorker(database_url)
    first, second = sorted(worker.claim(2, "free"), key=lambda one: one.claim.number)

    def end() -> list[Ending]:
        with bookkeeper(database_url) as connection:
            ended = Ended(second.claim, Result(Outcome.OK), Notes(log=["said"]))
            return finish(connection, [ended, Ended(first.claim, Result(Outcome.OK))])

    with ThreadPoolExecutor(1) as pool:
        with bookkeeper(database_url) as stopping:
            request_stop(stopping, [first.claim.number])
            ending = pool.submit(end)
            eventually(lambda: waiting_for_locks(database_url), "the end waits for the stop")
            request_stop(stopping, [second.claim.number])
        states = [one.state for one in ending.result(120)]
    assert states == [JobState.SUCCEEDED, JobState.SUCCEEDED]
