"""What a POST /distribute of one page costs, with 32 clients, acknowledged by the journal.

    python -m tests.bench.publish [REQUESTS]

Runs the publisher as a program, on the SQL journal and on Postgres's defaults for durability.
Prints one JSON line a measurement; processor time is that of the publisher alone, and that of
Postgres beside it. The anchor is the same server's empty answer, measured in turns with it.
"""

import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from packhorse.content import tree
from packhorse.db.connect import connect
from tests.harness.postgres import Databases, running_postgres
from tests.harness.realistic_pages import page

CLIENTS, ROUNDS, PAGES = 32, 5, 500
TICKS = os.sysconf("SC_CLK_TCK")
Request = Callable[[int], bytes]


@dataclass
class Sample:
    """One round of one kind of request."""

    rate: float
    server_us: float
    postgres_us: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        author = databases.new("author")
        fill(author)
        with program(author, databases.new("journal"), Path(folder)) as (url, pid):
            measure(url, count, (pid, server.pid()))


def fill(url: str) -> None:
    source = random.Random(1)
    with connect(url, "bench") as connection:
        tree.upsert(connection, [page(f"/content/p{n}", source, 5_000) for n in range(PAGES)])


@contextmanager
def program(author: str, journal: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run `packhorse-publisher`; gives its URL and its process id."""
    environment = {
        **os.environ,
        "PACKHORSE_DATABASE_URL": author,
        "PACKHORSE_JOURNAL_URL": journal,
        "PACKHORSE_BLOBS_URL": str(folder / "blobs"),
        "PACKHORSE_AUTHENTICATION": "false",
        "PACKHORSE_PORT": "0",
        "PACKHORSE_LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "packhorse_services.publisher"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.wait(30)


def measure(url: str, count: int, pids: tuple[int, int]) -> None:
    numbers = itertools.count()

    def distribute(number: int, key: str = "") -> bytes:
        body = b'{"action":"ADD","paths":["/content/p%d"]}' % (number % PAGES)
        return post("/distribute", body, key)

    def with_key(number: int) -> bytes:
        return distribute(number, f"Idempotency-Key: key-{next(numbers)}\r\n")

    kinds: dict[str, Request] = {
        "empty": lambda _: b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "distribute": distribute,
        "distribute_with_key": with_key,
    }
    asyncio.run(play(url, kinds["distribute"], count // 4, pids))
    samples: dict[str, list[Sample]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, request in kinds.items():
            samples[name].append(asyncio.run(play(url, request, count, pids)))
    anchor = statistics.median(sample.rate for sample in samples["empty"])
    for name, found in samples.items():
        report(name, found, anchor)


def post(path: str, body: bytes, headers: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{headers}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def play(url: str, request: Request, count: int, pids: tuple[int, int]) -> Sample:
    parts = urlsplit(url)
    numbers = iter(range(count))
    times: list[float] = []
    before = [processor_time(pids[0]), postgres_time(pids[1])]
    began = perf_counter()
    clients = (client(parts.hostname, parts.port, request, numbers, times) for _ in range(CLIENTS))
    await asyncio.gather(*clients)
    took = perf_counter() - began
    spent = [processor_time(pids[0]) - before[0], postgres_time(pids[1]) - before[1]]
    cuts = statistics.quantiles(times, n=100)
    server_us, postgres_us = (1e6 * part / count for part in spent)
    return Sample(count / took, server_us, postgres_us, 1e3 * cuts[49], 1e3 * cuts[98])


async def client(
    host: str | None, port: int | None, request: Request, numbers: Iterator[int], times: list[float]
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    for number in numbers:
        began = perf_counter()
        writer.write(request(number))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head[9:12] in (b"200", b"202"), head
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        times.append(perf_counter() - began)
    writer.close()


def processor_time(pid: int) -> float:
    """Return seconds of user and system time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def postgres_time(postmaster: int) -> float:
    """Return the time of the server's processes that live, and of those that have ended."""
    fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(") ")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / TICKS
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return ended + sum(processor_time(int(child)) for child in children)


def report(name: str, samples: list[Sample], anchor: float) -> None:
    def middle(field: str) -> float:
        return statistics.median(float(getattr(sample, field)) for sample in samples)

    line = {
        "name": f"publish.{name}",
        "value": round(middle("rate")),
        "unit": "requests/s",
        "anchor": "publish.empty",
        "ratio": round(middle("rate") / anchor, 3),
        "server_cpu_us": round(middle("server_us")),
        "postgres_cpu_us": round(middle("postgres_us")),
        "p50_ms": round(middle("p50_ms"), 1),
        "p99_ms": round(middle("p99_ms"), 1),
        "load_before": round(os.getloadavg()[0], 1),
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
