"""How long `Prefer: wait` takes: until two subscribers have committed a page, reported by each.

    python -m tests.bench.waiting [REQUESTS]

One client sends one page after the other to programs that do nothing else, on the SQL journal and
on Kafka. Prints one JSON line a measurement. The anchor is the publisher's empty answer to the same
client; a request that is not waited for stands beside it, and the same wait while another client
sends 30 requests a second that nobody waits for.
"""

import random
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from tests.bench.reporting import emit
from tests.harness.kafka.broker import running_kafka
from tests.harness.postgres import Databases, running_postgres
from tests.harness.realistic_pages import properties
from tests.harness.site import Site, site

_WARM_UP = 20
_STREAM_GAP_S = 1 / 30


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with running_postgres() as server, running_kafka() as broker:
        databases = Databases(server)
        for kind, url in (("sql", databases.new("journal")), ("kafka", broker.url)):
            with site(databases, url) as running:
                running.subscriber("sub1", editable=True)
                running.subscriber("sub2")
                running.start()
                running.put("/page", properties=properties(random.Random(1), 5_000))
                measure(running, kind, requests)


def measure(running: Site, kind: str, requests: int) -> None:
    kinds: dict[str, Callable[[], None]] = {
        "empty": lambda: empty(running),
        "accepted": lambda: distribute(running, {}),
        "awaited": lambda: distribute(running, {"Prefer": "wait=30"}),
    }
    times: dict[str, list[float]] = {}
    for name, request in kinds.items():
        times[name] = [timed(request) for _ in range(_WARM_UP + requests)][_WARM_UP:]
    with streaming(running):
        times["awaited_in_a_stream"] = [timed(kinds["awaited"]) for _ in range(requests)]
    anchor = statistics.median(times["empty"])
    for name, found in times.items():
        report(f"{name}_{kind}", found, anchor)


@contextmanager
def streaming(running: Site) -> Iterator[None]:
    """Send requests that nobody waits for, as another client."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(_STREAM_GAP_S):
            distribute(running, {})

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def timed(request: Callable[[], None]) -> float:
    began = perf_counter()
    request()
    return 1e3 * (perf_counter() - began)


def empty(running: Site) -> None:
    running.http.get(f"{running.publisher.url}/livez").raise_for_status()


def distribute(running: Site, headers: dict[str, str]) -> None:
    body = {"action": "ADD", "paths": ["/page"]}
    url = f"{running.publisher.url}/distribute"
    answer = running.http.post(url, json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert not headers or answer.json()["state"] == "DISTRIBUTED", answer.text


def report(name: str, times: list[float], anchor: float) -> None:
    cuts = statistics.quantiles(times, n=100)
    emit(name, cuts[49], "ms, p50", anchor=("an empty answer", anchor), p99_ms=cuts[98])


if __name__ == "__main__":
    main()
