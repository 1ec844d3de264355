"""What a POST /distribute of one page costs, of 32 clients and of one, until the journal has it.

    python -m tests.bench.publish [REQUESTS [FILE.svg]]

Runs the publisher as a program, on the SQL journal and on Postgres's defaults for durability, with
realistic pages of 5 KB. Prints one JSON line a measurement; processor time is that of the publisher
alone, and that of Postgres beside it. The anchor is the same server's empty answer, measured in
turns with it. `from_file` is `packhorse distribute --from-file` with ten times as many lines;
`statements_alone` is what a lone request makes all sessions of the server send. At the end the
package of each accepted request has to be in the journal once. With a file nothing is measured: a
flame graph of the publisher, with 32 clients, is written there.
"""

import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from urllib.parse import urlsplit

from packhorse.content import tree
from packhorse.db.connect import connect
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.bench.reporting import emit
from tests.harness.flame_graph import flame_graph
from tests.harness.footprint import processor_s, server_s
from tests.harness.postgres import Databases, running_postgres
from tests.harness.publisher_program import counted_statements, packages_in, program
from tests.harness.realistic_pages import page

CLIENTS, ROUNDS, PAGES, COUNTED = 32, 5, 500, 50
Request = Callable[[int], bytes]


@dataclass
class Sample:
    """One round of one kind of request."""

    rate: float
    server_us: float
    postgres_us: float
    p50_ms: float
    p99_ms: float


@dataclass
class Site:
    """A publisher that runs, and what it has accepted."""

    url: str
    journal: str
    pid: int
    server: EmbeddedPostgres
    accepted: list[str] = field(default_factory=list)

    def spent(self) -> tuple[float, float]:
        """Return seconds of the publisher's processor time, and of Postgres's."""
        return processor_s(self.pid), server_s(self.server.pid())


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        author, journal = databases.new("author"), databases.new("journal")
        fill(author)
        with program(author, journal, Path(folder)) as (url, pid):
            site = Site(url, journal, pid, server)
            if sys.argv[2:]:
                with flame_graph(pid, Path(sys.argv[2])):
                    asyncio.run(play(site, with_key(), count, CLIENTS))
                return
            measure(site, count)
            lines = 10 * count
            from_file(site, lines, Path(folder))
            count_statements(site)
            check(site, lines)


def fill(url: str) -> None:
    source = random.Random(1)
    with connect(url, "bench") as connection:
        tree.upsert(connection, [page(f"/content/p{n}", source, 5_000) for n in range(PAGES)])


def measure(site: Site, count: int) -> None:
    kinds: dict[str, tuple[Request, int, int]] = {
        "empty": (empty, count, CLIENTS),
        "distribute": (distribute, count, CLIENTS),
        "distribute_with_key": (with_key(), count, CLIENTS),
        "distribute_alone": (with_key(), max(100, count // 10), 1),
    }
    asyncio.run(play(site, distribute, count // 4, CLIENTS))
    samples: dict[str, list[Sample]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, (request, requests, clients) in kinds.items():
            samples[name].append(asyncio.run(play(site, request, requests, clients)))
    anchor = statistics.median(sample.rate for sample in samples["empty"])
    for name, found in samples.items():
        report(name, found, anchor)


def empty(_: int) -> bytes:
    return b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def distribute(number: int, key: str = "") -> bytes:
    body = b'{"action":"ADD","paths":["/content/p%d"]}' % (number % PAGES)
    head = (
        "POST /distribute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{key}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_KEYS = itertools.count()


def with_key() -> Request:
    return lambda number: distribute(number, f"Idempotency-Key: key-{next(_KEYS)}\r\n")


async def play(site: Site, request: Request, count: int, clients: int) -> Sample:
    parts = urlsplit(site.url)
    numbers = iter(range(count))
    times: list[float] = []
    answers: list[bytes] = []
    before, began = site.spent(), perf_counter()
    at_work = (
        client(parts.hostname, parts.port, request, numbers, times, answers) for _ in range(clients)
    )
    await asyncio.gather(*at_work)
    took, after = perf_counter() - began, site.spent()
    with suppress(KeyError):  # an empty answer names no package
        site.accepted += [json.loads(answer)["package_id"] for answer in answers]
    cuts = statistics.quantiles(times, n=100)
    server_us, postgres_us = (
        1e6 * (end - start) / count for start, end in zip(before, after, strict=True)
    )
    return Sample(count / took, server_us, postgres_us, 1e3 * cuts[49], 1e3 * cuts[98])


async def client(
    host: str | None,
    port: int | None,
    request: Request,
    numbers: Iterator[int],
    times: list[float],
    answers: list[bytes],
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    for number in numbers:
        began = perf_counter()
        writer.write(request(number))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head[9:12] in (b"200", b"202"), head
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        answers.append(await reader.readexactly(int(length)))
        times.append(perf_counter() - began)
    writer.close()


def from_file(site: Site, lines: int, folder: Path) -> None:
    """Replay a file of paths by the command line, its start included."""
    file = folder / "lines.txt"
    file.write_text("".join(f"/content/p{number % PAGES}\n" for number in range(lines)))
    command = [sys.executable, "-m", "packhorse_services.cli", "--server", site.url, "distribute"]
    before, began = site.spent(), perf_counter()
    subprocess.run(
        [*command, "--from-file", str(file), "--producer", "bench"],
        check=True,
        capture_output=True,
    )
    took, after = perf_counter() - began, site.spent()
    server_us, postgres_us = (
        1e6 * (end - start) / lines for start, end in zip(before, after, strict=True)
    )
    emit("from_file", lines / took, "lines/s", server_cpu_us=server_us, postgres_cpu_us=postgres_us)


def count_statements(site: Site) -> None:
    """Print how many statements a lone request makes, beyond those of an idle publisher."""
    with counted_statements(site.server) as busy:
        began = perf_counter()
        asyncio.run(play(site, with_key(), COUNTED, 1))
        took = perf_counter() - began
    with counted_statements(site.server) as idle:
        sleep(took)
    emit("statements_alone", (busy["statements"] - idle["statements"]) / COUNTED, "statements")


def check(site: Site, replayed: int) -> None:
    """Fail unless each accepted request, and each line, is in the journal once."""
    found = packages_in(site.journal)
    assert len(set(site.accepted)) == len(site.accepted)
    assert all(found[package_id] == 1 for package_id in site.accepted)
    assert set(found.values()) == {1}
    assert len(found) == len(site.accepted) + replayed, (len(found), len(site.accepted), replayed)


def report(name: str, samples: list[Sample], anchor: float) -> None:
    def middle(field: str) -> float:
        return statistics.median(float(getattr(sample, field)) for sample in samples)

    emit(
        name,
        middle("rate"),
        "requests/s",
        anchor=("empty", anchor),
        server_cpu_us=middle("server_us"),
        postgres_cpu_us=middle("postgres_us"),
        p50_ms=middle("p50_ms"),
        p99_ms=middle("p99_ms"),
    )


if __name__ == "__main__":
    main()
