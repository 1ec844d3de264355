"""Ending jobs with notes locks them in the order of their numbers, as whoever stops many does."""

import threading

import psycopg

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.store.finishing import Ended, finish, request_stop
from packhorse.jobs.store.notes import Notes
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.store import Store
from tests.harness.jobs.stored import bookkeeper
from tests.harness.waiting import eventually


def test_who_ends_and_who_stops_do_not_wait_for_each_other(database_url: str) -> None:
    Store(database_url).add("free/a")
    Store(database_url).add("free/a")
    worker = HandyWorker(database_url)
    first, second = sorted(worker.claim(2, "free"), key=lambda one: one.claim.number)
    failures: list[psycopg.Error] = []

    def end() -> None:
        try:
            with bookkeeper(database_url) as connection:
                ended = Ended(second.claim, Result(Outcome.OK), Notes(log=["said"]))
                finish(connection, [ended, Ended(first.claim, Result(Outcome.OK))])
        except psycopg.Error as error:
            failures.append(error)

    with bookkeeper(database_url) as stopping:
        request_stop(stopping, [first.claim.number])
        ending = threading.Thread(target=end)
        ending.start()
        eventually(lambda: _waits(database_url), what="the end waits for the stop")
        request_stop(stopping, [second.claim.number])
    ending.join(120)
    assert failures == []


def _waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        )
        return found.fetchone() is not None
