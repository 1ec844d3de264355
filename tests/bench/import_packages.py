"""Importing a backlog of packages into one subscriber, durable and exactly once.

`python -m tests.bench.import_packages [--packages N] [--nodes 1,11] [--journal URL] [--rounds N]`
prints one JSON line a measurement. The anchor is the same importer with one package a transaction.
"""

import argparse
import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import encode_package
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.subscriber.importing.context import GroupLimits
from tests.harness.feed import Feed
from tests.harness.postgres import Databases, running_postgres
from tests.harness.realistic_pages import page
from tests.harness.subscriber import Worker, rows_of
from tests.harness.waiting import eventually

_TICKS = os.sysconf("SC_CLK_TCK")
_PACKAGE_BYTES = 5_000


@dataclass(frozen=True)
class Cost:
    """CPU and wall time of one run, in seconds."""

    python_s: float
    postgres_s: float
    wall_s: float


def fill(feed: Feed, packages: int, nodes: int) -> None:
    """Append packages of `nodes` pages, 5 KB together; every tenth changes earlier pages."""
    source = random.Random(1)
    for number in range(packages):
        first = source.randrange(number + 1) if number % 10 == 0 else number
        size = _PACKAGE_BYTES // nodes
        pages = [page(f"/content/site/p{first}/n{n}", source, size) for n in range(nodes)]
        paths = [each.path for each in pages]
        encoded = encode_package(feed.message(Action.ADD, paths, [], pages))
        feed.raw(encoded.value, dict(encoded.headers))


def postgres_cpu(server: EmbeddedPostgres) -> float:
    """CPU seconds of the server's processes, those that have ended included."""
    pid = server.pid()
    total = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            total += int(fields[11]) + int(fields[12])
        if entry.parent.name == str(pid):
            total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


@contextmanager
def measured(server: EmbeddedPostgres, costs: list[Cost]) -> Iterator[None]:
    before = time.process_time(), postgres_cpu(server), time.perf_counter()
    yield
    after = time.process_time(), postgres_cpu(server), time.perf_counter()
    costs.append(Cost(*(late - early for early, late in zip(before, after, strict=True))))


def import_all(url: str, feed: Feed, group: int) -> None:
    worker = Worker(
        url, feed.journal, feed.blobs, editable=False, limits=GroupLimits(packages=group)
    )
    worker.run(deadline_s=3600)
    worker.die()
    sessions = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'packhorse%'"
    eventually(lambda: not rows_of(url, sessions), what="the worker's sessions end")


def report(name: str, costs: list[Cost], packages: int, anchor: float | None = None) -> float:
    """Print the medians and return the CPU a package, in microseconds."""
    python = median(cost.python_s for cost in costs) / packages * 1e6
    postgres = median(cost.postgres_s for cost in costs) / packages * 1e6
    line = {
        "name": name,
        "value": round(packages / median(cost.wall_s for cost in costs)),
        "unit": "packages/s",
        "anchor": "one package a transaction",
        "ratio": round(anchor / (python + postgres), 1) if anchor else None,
        "cpu_us_per_unit": {"python": round(python, 1), "postgres": round(postgres, 1)},
        "load_before": os.getloadavg()[0],
    }
    print(json.dumps(line), flush=True)
    return python + postgres


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=20_000)
    parser.add_argument("--nodes", default="1,11")
    parser.add_argument("--journal", default="memory")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        for nodes in map(int, options.nodes.split(",")):
            packages = options.packages
            feed = Feed(_journal(options.journal, databases), open_blobs(folder))
            fill(feed, packages, nodes)
            _compare(server, databases, feed, nodes, packages, options.rounds)


def _journal(kind: str, databases: Databases):  # type: ignore[no-untyped-def]
    url = {"memory": f"memory://{uuid.uuid4()}", "sql": ""}.get(kind, kind)
    return open_journal(url or databases.new("journal"), client_name="bench")


def _compare(
    server: EmbeddedPostgres,
    databases: Databases,
    feed: Feed,
    nodes: int,
    packages: int,
    rounds: int,
) -> None:
    alone: list[Cost] = []
    grouped: list[Cost] = []
    for _ in range(rounds):
        with measured(server, grouped):
            import_all(databases.new("grouped"), feed, 256)
        with measured(server, alone):
            import_all(databases.new("alone"), feed, 1)
    anchor = report(f"import alone, {nodes} nodes", alone, packages)
    report(f"import grouped, {nodes} nodes", grouped, packages, anchor)


if __name__ == "__main__":
    main()
