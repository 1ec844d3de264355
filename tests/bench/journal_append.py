"""What the SQL journal appends and reads, and what that costs in CPU.

    python -m tests.bench.journal_append [RECORDS]

Prints one JSON line a measurement. Appends take turns with what a log by hand would do (eight
connections, one INSERT and commit a record, which is faster in nothing but misses records); reads
with a bare `SELECT … ORDER BY` of the same rows. Medians of the rounds are compared.
"""

import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing

import psycopg

from packhorse.messaging.api import Appended, Journal, LogEnd, Outgoing
from packhorse.messaging.open import open_journal
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.bench.reporting import emit
from tests.harness.footprint import server_s
from tests.harness.journals import create
from tests.harness.postgres import Databases, running_postgres

_ROUNDS = 5
_WRITERS = 8
_VALUE = os.urandom(5_000)
_HEADERS = {"message-type": b"PackageMessage", "message-version": b"1", "entry": os.urandom(120)}

Figures = tuple[float, float, float]
"""Records a second, our CPU and the server's, both in microseconds a record."""


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with running_postgres() as server:
        url = Databases(server).new("bench")
        with closing(open_journal(url, client_name="bench")) as journal:
            latencies(journal)
            appends(server, url, journal, records)
            reads(server, url, journal, records)


def latencies(journal: Journal) -> None:
    """One record at a time: until it is acknowledged, and until a waiting reader has it."""
    topic = create(journal)
    journal.append(topic, Outgoing(_VALUE)).result()
    acknowledged, delivered = [], []
    with journal.reader(topic, LogEnd.NEXT) as reader:
        reader.poll(0.5)
        for _ in range(300):
            start = time.perf_counter()
            future = journal.append(topic, Outgoing(_VALUE, _HEADERS))
            future.add_done_callback(lambda _: acknowledged.append(time.perf_counter()))
            while not reader.poll(10.0):
                pass
            delivered.append(time.perf_counter() - start)
            future.result()
            acknowledged[-1] -= start
    for name, seconds in (("append_ack", acknowledged), ("append_to_read", delivered)):
        percentiles = statistics.quantiles(seconds, n=100)
        emit(name, percentiles[49] * 1e3, "ms, p50", p99_ms=percentiles[98] * 1e3)


def appends(server: EmbeddedPostgres, url: str, journal: Journal, records: int) -> None:
    """Eight writers, each with one record in flight and with 64."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE by_hand (id bigserial PRIMARY KEY, body bytea STORAGE EXTERNAL)"
        )
    for window in (1, 64):
        topic = create(journal)
        compare(
            f"append_5kb_window_{window}",
            server,
            lambda topic=topic, window=window: append(journal, topic, records, window),
            ("a log by hand", lambda: append_by_hand(url, records // 10)),
            records,
            records // 10,
        )


def append(journal: Journal, topic: str, records: int, window: int) -> None:
    def write() -> None:
        waiting: deque[Future[Appended]] = deque()
        for _ in range(records // _WRITERS):
            waiting.append(journal.append(topic, Outgoing(_VALUE, _HEADERS)))
            if len(waiting) == window:
                waiting.popleft().result()
        for future in waiting:
            future.result()

    in_threads(write)


def append_by_hand(url: str, records: int) -> None:
    def write() -> None:
        with psycopg.connect(url) as connection:
            for _ in range(records // _WRITERS):
                connection.execute("INSERT INTO by_hand (body) VALUES (%b)", (_VALUE,))
                connection.commit()

    in_threads(write)


def in_threads(run: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run) for _ in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reads(server: EmbeddedPostgres, url: str, journal: Journal, records: int) -> None:
    topic = create(journal)
    append(journal, topic, records, 64)
    with psycopg.connect(url) as connection:
        [(table,)] = connection.execute(
            "SELECT format('journal.records_%s_%s', partition_id, first_offset)"
            " FROM journal.segment ORDER BY partition_id DESC LIMIT 1"
        ).fetchall()
    for name, values, columns in (
        ("read_5kb", True, "*"),
        ("read_without_values", False, '"offset", time_ms, key, headers'),
    ):
        compare(
            name,
            server,
            lambda values=values: read(journal, topic, records, values),
            ("a bare SELECT", lambda columns=columns: read_bare(url, table, columns)),
            records,
            records,
        )


def read(journal: Journal, topic: str, records: int, values: bool) -> None:
    with journal.reader(topic, LogEnd.OLDEST, values=values) as reader:
        while records > 0:
            records -= len(reader.poll(10.0))


def read_bare(url: str, table: str, columns: str) -> None:
    query = f'SELECT {columns} FROM {table} WHERE "offset" >= %s ORDER BY "offset" LIMIT 500'
    with psycopg.connect(url, autocommit=True) as connection:
        offset = 0
        while rows := connection.cursor(binary=True).execute(query, (offset,)).fetchall():
            offset += len(rows)


def compare(
    name: str,
    server: EmbeddedPostgres,
    ours: Callable[[], None],
    anchor: tuple[str, Callable[[], None]],
    records: int,
    anchor_records: int,
) -> None:
    rounds = [
        (measured(records, server, ours), measured(anchor_records, server, anchor[1]))
        for _ in range(_ROUNDS)
    ]
    (rate, cpu, server_cpu), (bare_rate, bare_cpu, bare_server_cpu) = (
        [statistics.median(figures) for figures in zip(*side, strict=True)]
        for side in zip(*rounds, strict=True)
    )
    emit(
        name,
        rate,
        "records/s",
        anchor=(anchor[0], bare_rate),
        cpu_us=cpu,
        postgres_cpu_us=server_cpu,
        anchor_cpu_us=bare_cpu,
        anchor_postgres_cpu_us=bare_server_cpu,
    )


def measured(records: int, server: EmbeddedPostgres, action: Callable[[], None]) -> Figures:
    start, own, foreign = time.perf_counter(), time.process_time(), server_s(server.pid())
    action()
    seconds = time.perf_counter() - start
    used = (time.process_time() - own, server_s(server.pid()) - foreign)
    return records / seconds, used[0] / records * 1e6, used[1] / records * 1e6


if __name__ == "__main__":
    main()
