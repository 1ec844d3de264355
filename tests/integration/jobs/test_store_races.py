"""Many at once on one Postgres: whatever their order, a topic and an id stay one job."""

import random
import threading
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.queue import QueueType
from packhorse.jobs.store import adding
from packhorse.jobs.store.adding import add_jobs
from packhorse.jobs.store.claims import ClaimRequest, claim
from packhorse.jobs.store.finishing import Ended, finish
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.leases import WorkerRun, renew
from packhorse.jobs.store.rescue import rescue
from tests.harness.jobs.store import Store

ROUNDS = 60
KEYS = 6


@pytest.fixture
def store(database_url: str) -> Store:
    store = Store(database_url, retry_delay_s=0.0)
    store.add("free/a"), store.add("line/a")
    return store


def at_once(*acts: Callable[[], None]) -> None:
    """Do all, each in a thread; raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def giver(store: Store, seed: int) -> None:
    """Give the same few ids over and over, several at a time."""
    chance = random.Random(seed)
    with psycopg.connect(store.url) as connection:
        for _ in range(ROUNDS):
            ids = [str(chance.randrange(KEYS)) for _ in range(chance.randrange(1, 4))]
            topic = chance.choice(("free/a", "line/a"))
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                application = chance.choice(("me", "you"))
                add_jobs(connection, application, [NewJob(topic, id=one) for one in ids])


def worker(store: Store, seed: int) -> None:
    """Claim, end and rescue; some attempts fail, some leases are short."""
    chance, run = random.Random(seed), WorkerRun.begin(f"i{seed}")
    requests = [
        ClaimRequest("free", ["free/a"], 3, type=QueueType.UNORDERED),
        ClaimRequest("line", ["line/a"], 1, type=QueueType.ORDERED),
    ]
    with psycopg.connect(store.url) as connection:
        for _ in range(ROUNDS):
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                renew(connection, run, chance.choice((0.0, 30.0)))
                claimed = claim(connection, run, requests)
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                outcome = chance.choice((Outcome.OK, Outcome.OK, Outcome.FAILED))
                finish(connection, [Ended(one.claim, Result(outcome)) for one in claimed])
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                rescue(connection)


def check(store: Store) -> None:
    """Raise where an id is two jobs, or a line has two under way."""
    keys = Counter(
        store.rows(
            "SELECT topic, id FROM jobs.job WHERE id IS NOT NULL UNION ALL "
            "SELECT topic, id FROM jobs.finished WHERE id IS NOT NULL"
        )
    )
    assert [key for key, count in keys.items() if count > 1] == []
    [(active,)] = store.rows(
        "SELECT count(*) FROM jobs.job WHERE topic = 'line/a' AND state = 'ACTIVE'"
    )
    assert active <= 1


def test_givers_and_workers_at_once(store: Store) -> None:
    at_once(
        *(lambda seed=seed: giver(store, seed) for seed in range(3)),
        *(lambda seed=seed: worker(store, seed) for seed in range(10, 13)),
    )
    check(store)
    assert store.rows("SELECT count(*) > 0 FROM jobs.finished") == [(True,)]


@pytest.mark.proof
def test_an_id_that_is_two_jobs_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "finished_of", lambda *_: [])

    def run() -> None:
        for seed in range(20):
            giver(store, seed)
            worker(store, seed)
            check(store)

    with pytest.raises((AssertionError, psycopg.errors.UniqueViolation)):
        run()
