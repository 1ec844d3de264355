"""Jobs a second, with a long history; and what a claim costs when much waits.

    python -m tests.bench.jobs [JOBS] [HISTORY] [WORKERS]

Prints one JSON line a measurement. Workers are processes that do as a worker does: they end a batch
of attempts and claim the next in one transaction. The anchor, in the same run and database, is a
queue as simple as can be: a table, `SKIP LOCKED`, no claim that is checked, no history to look up,
no statistics and no events.
"""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.host import open_jobs
from packhorse.jobs.queue import MAIN, QueueConfiguration, QueueType
from packhorse.jobs.store.adding import NewJob, add_jobs
from packhorse.jobs.store.claims import Claimed, ClaimRequest, claim
from packhorse.jobs.store.finishing import Ended, finish
from packhorse.jobs.store.leases import WorkerRun, renew
from packhorse.jobs.store.queues import declare_queue, suspend_queue
from tests.bench.queues import emit
from tests.harness.postgres import Databases, running_postgres
from tests.harness.publisher_program import postgres_time

BATCH = 50
TOPICS = [f"bench/topic_{number}" for number in range(5)]
QUEUE = QueueConfiguration("bench", ("bench/**",), type=QueueType.UNORDERED, max_parallel=64)
CLAIM_REQUEST = ClaimRequest("bench", TOPICS, BATCH, type=QueueType.UNORDERED)
OK = Result(Outcome.OK)


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:]]
    jobs, history, workers = [*given, *(30_000, 1_000_000, 2)[len(given) :]]
    with running_postgres() as server:
        url = Databases(server).new()
        prepare(url, history)
        for _ in range(3):
            simple(url, jobs, workers)
            with cpu_of(server.pid(), "jobs_done_cpu", jobs):
                throughput(url, jobs, workers, history)
            with cpu_of(server.pid(), "jobs_done_by_workers_cpu", jobs):
                whole_workers(url, jobs, workers, history)
            whole_workers(url, jobs, workers, history, MAIN)
        claims_among(url, 10_000)
        claims_among(url, 1_000_000)


@contextmanager
def cpu_of(postmaster: int, name: str, jobs: int) -> Iterator[None]:
    """Measure the processor's time for a job, of Postgres and of the workers, adding included.

    On a machine that others use too it says more than jobs a second.
    """

    def spent() -> float:
        workers = resource.getrusage(resource.RUSAGE_CHILDREN)
        while True:
            with suppress(FileNotFoundError, ProcessLookupError):  # a session ended meanwhile
                return postgres_time(postmaster) + workers.ru_utime + workers.ru_stime

    before = spent()
    yield
    emit(name, (spent() - before) / jobs * 1e3, "ms of a core for a job")


def prepare(url: str, history: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE simple (number bigserial PRIMARY KEY, properties jsonb)")
        connection.execute("CREATE TABLE simple_done (number bigint, properties jsonb)")
    in_transaction(url, lambda connection: declare_queue(connection, QUEUE))
    in_transaction(url, lambda connection: add_jobs(connection, "bench", new_jobs(1)))
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM jobs.job")
        connection.execute(
            """
            INSERT INTO jobs.finished (number, topic, id, application, created_at, ready_at,
                attempts, instance, epoch, started_at, queue, max_retries, state, finished_at)
            SELECT nextval('jobs.number'), (%s::text[])[1 + n %% 5], n::text, 'bench', t, t, 1,
                'elsewhere', 1, t, 'bench', 10, 'SUCCEEDED', t
            FROM (SELECT n, now() - make_interval(secs => n) AS t
                FROM generate_series(1, %s) n) g
            """,
            (TOPICS, history),
        )
    vacuum(url)


def vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def throughput(url: str, jobs: int, workers: int, history: int) -> None:
    began = time.perf_counter()
    add_all(url, jobs)
    took = time.perf_counter() - began
    emit("jobs_added", jobs / took, "jobs/s", batch=1_000)
    took = together(work, url, workers)
    emit("jobs_done", jobs / took, "jobs/s", workers=workers, history=history, batch=BATCH)
    with psycopg.connect(url) as connection:
        [(left,)] = connection.execute("SELECT count(*) FROM jobs.job").fetchall()
        assert left == 0, left


def whole_workers(url: str, jobs: int, workers: int, history: int, queue: str = QUEUE.name) -> None:
    """Measure `JobWorker`s whose consumer does nothing; they begin when the queue is resumed."""
    in_transaction(url, lambda connection: suspend_queue(connection, queue, suspended=True))
    add_all(url, jobs, queue)
    ending, ready = multiprocessing.Event(), multiprocessing.Barrier(workers + 1)
    processes = [
        multiprocessing.Process(target=whole_worker, args=(url, ready, ending))
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    ready.wait()
    began = time.perf_counter()
    in_transaction(url, lambda connection: suspend_queue(connection, queue, suspended=False))
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("SELECT FROM jobs.job LIMIT 1").fetchone() is not None:
            time.sleep(0.05)
    took = time.perf_counter() - began
    ending.set()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    reported: dict[str, Any] = {"workers": workers, "history": history, "queue": queue}
    emit("jobs_done_by_workers", jobs / took, "jobs/s", **reported)


def whole_worker(url: str, ready: Any, ending: Any) -> None:
    consumers = Consumers()
    consumers.add("**", lambda _job, _context: Outcome.OK)
    host = open_jobs(url, None, consumers=consumers)
    host.start()
    ready.wait()
    ending.wait()
    host.stop(10.0)


def add_all(url: str, jobs: int, queue: str = QUEUE.name) -> None:
    for first in range(0, jobs, 1_000):
        batch = new_jobs(min(1_000, jobs - first), queue)
        in_transaction(url, lambda connection, given=batch: add_jobs(connection, "bench", given))


def new_jobs(count: int, queue: str = QUEUE.name) -> list[NewJob]:
    topics = [topic.replace(QUEUE.name, queue) for topic in TOPICS]
    return [NewJob(topics[number % 5], {"path": f"/content/{number}"}) for number in range(count)]


def work(url: str, name: str) -> None:
    run = WorkerRun.begin(name)
    done: list[Claimed] = []
    with psycopg.connect(url) as connection:
        while True:
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                if not done:
                    renew(connection, run)
                finish(connection, [Ended(one.claim, OK) for one in done])
                done = claim(connection, run, [CLAIM_REQUEST])
            if not done:
                return


def simple(url: str, jobs: int, workers: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO simple (properties) SELECT jsonb_build_object('path', n::text) "
            "FROM generate_series(1, %s) n",
            (jobs,),
        )
    emit("simple_queue_done", jobs / together(work_simply, url, workers), "jobs/s", batch=BATCH)


def work_simply(url: str, _name: str) -> None:
    with psycopg.connect(url) as connection:
        while True:
            with connection.transaction():
                found = connection.execute(
                    "SELECT number, properties FROM simple ORDER BY number "
                    "LIMIT %s FOR UPDATE SKIP LOCKED",
                    (BATCH,),
                ).fetchall()
                connection.execute(
                    "WITH gone AS (DELETE FROM simple WHERE number = ANY(%s) RETURNING *) "
                    "INSERT INTO simple_done SELECT * FROM gone",
                    ([number for number, _ in found],),
                )
            if not found:
                return


def together(target: Callable[[str, str], None], url: str, workers: int) -> float:
    """Return the seconds until all workers have found nothing more to do."""
    started = multiprocessing.Barrier(workers + 1)
    processes = [
        multiprocessing.Process(target=begin, args=(started, target, url, f"worker-{number}"))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    started.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return time.perf_counter() - began


def begin(started: Any, target: Callable[[str, str], None], url: str, name: str) -> None:
    started.wait()
    target(url, name)


def claims_among(url: str, waiting: int) -> None:
    """Measure single claims with so many waiting of own topics, and as many that nobody does."""
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM jobs.job")
        connection.execute(
            "INSERT INTO jobs.topic VALUES ('bench/nobody', 'bench') ON CONFLICT DO NOTHING"
        )
        for topics, number in ((TOPICS, waiting), (["bench/nobody"], waiting)):
            connection.execute(
                """
                INSERT INTO jobs.job (number, turn, topic, application, created_at, ready_at,
                    priority)
                SELECT n, n, (%s::text[])[1 + n %% %s], 'bench', now(), now(), n %% 7
                FROM (SELECT nextval('jobs.number') AS n FROM generate_series(1, %s)) g
                """,
                (topics, len(topics), number),
            )
    vacuum(url)
    request = ClaimRequest("bench", TOPICS, 1, type=QueueType.UNORDERED)
    run, times = WorkerRun.begin("one"), []
    with psycopg.connect(url) as connection:
        for _ in range(300):
            began = time.perf_counter()
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                renew(connection, run)
                assert claim(connection, run, [request])
            times.append(time.perf_counter() - began)
    emit("claim_of_one", statistics.median(times) * 1e3, "ms (median)", waiting=2 * waiting)


def in_transaction(url: str, act: Callable[[Connection], Any]) -> Any:
    with psycopg.connect(url) as connection, connection.transaction():
        act_as(connection, BOOKKEEPER)
        return act(connection)


if __name__ == "__main__":
    main()
