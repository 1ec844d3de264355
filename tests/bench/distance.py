"""What distance costs: a subscriber whose journal, on SQL, is 150 ms away, there and back.

    python -m tests.bench.distance [PACKAGES]

Its own database is beside it. Measured are a backlog of pages of 5 KB until it has imported them,
its start included, and `Prefer: wait`. The anchor is the same subscriber beside its journal. A
relay delays what passes it, both ways; its bandwidth is the machine's. Prints one JSON line a
measurement.
"""

import random
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from urllib.parse import urlsplit

from packhorse.content import tree
from packhorse.db.connect import connect
from tests.bench.reporting import emit
from tests.harness.cutting_proxy import FarProxy, serving
from tests.harness.postgres import Databases, running_postgres
from tests.harness.realistic_pages import page
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

PAGES, WAITS = 500, 20
BOTH_WAYS_S = 0.15


def main() -> None:
    packages = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with running_postgres() as server:
        databases = Databases(server)
        near = measured(databases, packages, 0.0)
        far = measured(databases, packages, BOTH_WAYS_S)
    units = {"backlog": "packages/s", "awaited": "ms, p50"}
    for name, unit in units.items():
        emit(f"{name}_far", far[name], unit, anchor=("beside its journal", near[name]))


def measured(databases: Databases, packages: int, both_ways_s: float) -> dict[str, float]:
    journal = databases.new("journal")
    with relay(journal, both_ways_s / 2) as url, site(databases, journal) as running:
        running.start()
        fill(running, packages)
        began = perf_counter()
        running.subscriber("sub1", journal_url=url)
        running.start()
        eventually(lambda: running.queue("sub1")["offset"] == packages - 1, timeout=600)
        took = perf_counter() - began
        awaited = statistics.median(wait(running, number) for number in range(WAITS))
    return {"backlog": packages / took, "awaited": awaited}


def fill(running: Site, packages: int) -> None:
    source = random.Random(1)
    with connect(running.author_url, "bench") as connection:
        tree.upsert(connection, [page(f"/p{number}", source, 5_000) for number in range(PAGES)])
    requests = [{"action": "ADD", "paths": [f"/p{number}"]} for number in range(PAGES)]
    for _ in range(packages // PAGES):
        url = f"{running.publisher.url}/distribute/batch"
        running.http.post(url, json={"requests": requests}).raise_for_status()


def wait(running: Site, number: int) -> float:
    began = perf_counter()
    body = {"action": "ADD", "paths": [f"/p{number}"]}
    url, headers = f"{running.publisher.url}/distribute", {"Prefer": "wait=60"}
    answer = running.http.post(url, json=body, headers=headers)
    assert answer.json()["state"] == "DISTRIBUTED", answer.text
    return 1e3 * (perf_counter() - began)


@contextmanager
def relay(url: str, delay_s: float) -> Iterator[str]:
    """Give a URL of the same server that everything reaches, and leaves, so much later."""
    parts = urlsplit(url)
    with serving(FarProxy((parts.hostname or "", parts.port or 0), delay_s)) as proxy:
        yield url.replace(f":{parts.port}/", f":{proxy.port}/")


if __name__ == "__main__":
    main()
