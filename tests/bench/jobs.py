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
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.host import open_jobs
from packhorse.jobs.queue import MAIN, QueueConfiguration, QueueType
from packhorse.jobs.store.adding import add_jobs
from packhorse.jobs.store.claims import Claimed, ClaimRequest, claim
from packhorse.jobs.store.finishing import Ended, finish
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.leases import WorkerRun, renew
from packhorse.jobs.store.queues import declare_queue, suspend_queue
from tests.bench.reporting import emit
from tests.harness.footprint import server_s
from tests.harness.postgres import Databases, running_postgres

BATCH, _ROUNDS = 50, 3
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
        rounds = [measured(server.pid(), url, jobs, workers) for _ in range(_ROUNDS)]
        claims_among(url, history // 100)
        claims_among(url, history)
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    anchor = ("a simple queue", middle["simple"])
    more = {"workers": workers, "history": history}
    emit("added", middle["added"], "jobs/s")
    emit("done", middle["done"], "jobs/s", anchor=anchor, cpu_ms=middle["done_cpu"], **more)
    for queue in (QUEUE.name, MAIN):
        name, cpu = f"done_by_workers_{queue}", middle[f"{queue}_cpu"]
        emit(name, middle[queue], "jobs/s", anchor=anchor, cpu_ms=cpu, **more)


def measured(postmaster: int, url: str, jobs: int, workers: int) -> dict[str, float]:
    """Do the same number of jobs in each way; return jobs a second, and milliseconds of CPU a job.

    The CPU is that of Postgres and of the workers, adding included. On a machine that others use
    too it says more than jobs a second.
    """

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return server_s(postmaster) + children.ru_utime + children.ru_stime

    found = {"simple": simple(url, jobs, workers)}
    before = spent()
    found["added"], found["done"] = throughput(url, jobs, workers)
    found["done_cpu"] = (spent() - before) / jobs * 1e3
    for queue in (QUEUE.name, MAIN):
        before = spent()
        found[queue] = whole_workers(url, jobs, workers, queue)
        found[f"{queue}_cpu"] = (spent() - before) / jobs * 1e3
    return found


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


def throughput(url: str, jobs: int, workers: int) -> tuple[float, float]:
    """Return the jobs a second that are added, and those that are claimed and finished."""
    began = time.perf_counter()
    add_all(url, jobs)
    added = jobs / (time.perf_counter() - began)
    done = jobs / together(work, url, workers)
    with psycopg.connect(url) as connection:
        [(left,)] = connection.execute("SELECT count(*) FROM jobs.job").fetchall()
        assert left == 0, left
    return added, done


def whole_workers(url: str, jobs: int, workers: int, queue: str) -> float:
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
    return jobs / took


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


def simple(url: str, jobs: int, workers: int) -> float:
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO simple (properties) SELECT jsonb_build_object('path', n::text) "
            "FROM generate_series(1, %s) n",
            (jobs,),
        )
    return jobs / together(work_simply, url, workers)


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
        for _ in range(min(300, waiting)):
            began = time.perf_counter()
            with connection.transaction():
                act_as(connection, BOOKKEEPER)
                renew(connection, run)
                assert claim(connection, run, [request])
            times.append(time.perf_counter() - began)
    emit(f"claim_among_{2 * waiting}", statistics.median(times) * 1e3, "ms, p50")


def in_transaction(url: str, act: Callable[[Connection], Any]) -> Any:
    with psycopg.connect(url) as connection, connection.transaction():
        act_as(connection, BOOKKEEPER)
        return act(connection)


if __name__ == "__main__":
    main()
