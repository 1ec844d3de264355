"""How long an urgent request takes while a bulk export of another subtree is under way.

    python -m tests.bench.urgent [NODES]

One client distributes a page at a time. Beside it NODES nodes are exported: by the same process,
or by another one of another agent; before the append lock is taken, or under it, as it was before
ADR 0012. Prints one JSON line a measurement. The anchor is the same client without a bulk export.
"""

import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse.messaging.open import open_journal
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.bench.reporting import emit
from tests.harness.exporters import running
from tests.harness.postgres import Databases, running_postgres
from tests.harness.publishing import AGENT, Author, request
from tests.harness.realistic_pages import page

_PAGES, _QUIET = 500, 300
_SPAWN = multiprocessing.get_context("spawn")


class Place(NamedTuple):
    """Where an author's database, journal and blobs are."""

    database: str
    journal: str
    blobs: str


class Measured(NamedTuple):
    """Times of the urgent requests in milliseconds, and of the bulk export in seconds."""

    urgent_ms: list[float]
    bulk_s: float


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        place = Place(databases.new("author"), databases.new("journal"), str(Path(folder) / "b"))
        fill(place.database, nodes)
        anchor = report("quiet", quiet(place), None)
        for early in (False, True):
            name = "early" if early else "under_lock"
            report(f"same_process_{name}", same_process(place, early=early), anchor)
            report(f"other_agent_{name}", other_process(place, early=early), anchor)


def fill(url: str, nodes: int) -> None:
    source = random.Random(1)
    with connect(url, "bench") as connection:
        tree.upsert(connection, [page(f"/content/p{n}", source, 1_000) for n in range(_PAGES)])
        tree.upsert(connection, [Node("/bulk", "folder")])
        for first in range(0, nodes, 5_000):
            batch = range(first, min(first + 5_000, nodes))
            tree.upsert(connection, [Node(f"/bulk/n{n}", "page", noisy(n)) for n in batch])


def noisy(number: int) -> str:
    """Return properties of about a kilobyte that do not compress away."""
    return json.dumps({"number": number, "noise": os.urandom(350).hex(), "text": "lorem " * 50})


@contextmanager
def intake(place: Place, agent: str, *, early: bool) -> Iterator[RequestIntake]:
    journal = open_journal(place.journal, client_name="bench")
    author = Author(place.database, journal, open_blobs(place.blobs))
    before_lock = author.early(agent=agent) if early else None
    made = RequestIntake(author.replica(agent=agent), SystemClock(), early=before_lock)
    with running([made]):
        made.submit(request("/content/p0")).future.result(60)
        yield made
    author.close()
    journal.close()


def quiet(place: Place) -> Measured:
    with intake(place, AGENT, early=True) as one:
        return Measured([urgent(one, number) for number in range(_QUIET)], 0.0)


def same_process(place: Place, *, early: bool) -> Measured:
    with intake(place, AGENT, early=early) as one:
        began = perf_counter()
        bulk = one.submit(request(deep=["/bulk"])).future
        times = [urgent(one, 0)]
        while not bulk.done():
            times.append(urgent(one, len(times)))
        bulk.result()
        return Measured(times, perf_counter() - began)


def other_process(place: Place, *, early: bool) -> Measured:
    ready, go, done = _SPAWN.Event(), _SPAWN.Event(), _SPAWN.Event()
    child = _SPAWN.Process(target=export_bulk, args=(place, early, ready, go, done))
    child.start()
    with intake(place, AGENT, early=True) as one:
        ready.wait(60)
        began = perf_counter()
        go.set()
        threading.Event().wait(0.1)  # until the child has begun
        times = [urgent(one, 0)]
        while not done.is_set() and child.is_alive():
            times.append(urgent(one, len(times)))
        took = perf_counter() - began
    child.join(60)
    return Measured(times, took)


def export_bulk(place: Place, early: bool, ready: Event, go: Event, done: Event) -> None:
    with intake(place, "bulk", early=early) as one:
        ready.set()
        go.wait(60)
        one.submit(request(deep=["/bulk"])).future.result(600)
        done.set()


def urgent(one: RequestIntake, number: int) -> float:
    began = perf_counter()
    one.submit(request(f"/content/p{number % _PAGES}")).future.result(600)
    return 1e3 * (perf_counter() - began)


def report(name: str, measured: Measured, anchor: float | None) -> float:
    middle = statistics.median(measured.urgent_ms)
    emit(
        name,
        middle,
        "ms, p50",
        anchor=("quiet", anchor or middle),
        max_ms=max(measured.urgent_ms),
        requests=len(measured.urgent_ms),
        bulk_s=measured.bulk_s,
    )
    return middle


if __name__ == "__main__":
    main()
