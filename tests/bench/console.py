"""What pages of the console cost beside a publisher with 1,000 subscribers.

    python -m tests.bench.console [ENTRIES]

Prints a JSON line a page: how long its answer takes (wall time, p95 of 40, the publisher's part
included, which is a process of its own with ENTRIES packages in its cache), the console's own
processor time, and the size. At the end what a console costs that nobody looks at.
"""

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from types import SimpleNamespace
from typing import Any

import httpx

from packhorse.runtime.auth import Authenticator
from packhorse_services.console.app import console
from packhorse_services.console.settings import Settings
from tests.bench.queues import SUBSCRIBERS, application, filled
from tests.bench.reporting import emit
from tests.harness.topology.served import Served

PAGES = (
    "overview",
    "overview/content",
    "overview?find=s77",
    "queue?agent=main&subscriber=s1",
    "queue/content?agent=main&subscriber=s1",
    "queue?agent=main&subscriber=s1&path=/content/none",
    "queue/clear?agent=main&subscriber=s1",
)
_REPEATS = 40
_IDLE_S = 20.0


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with publisher(entries) as url:
        settings = Settings.model_validate({"publisher_urls": {"main": url}})
        served = serve(console(settings, Authenticator.off()))
        try:
            with httpx.Client(base_url=f"{served.url}/pages/", timeout=120) as browser:
                for page in PAGES:
                    measure(browser, page)
            before = time.process_time()
            time.sleep(_IDLE_S)
            idle = (time.process_time() - before) / _IDLE_S * 1000
            emit("idle", idle / 10, "% of a core")
        finally:
            served.end()


def measure(browser: httpx.Client, page: str) -> None:
    browser.get(page).raise_for_status()
    taken, before = [], time.process_time()
    for _ in range(_REPEATS):
        began = time.perf_counter()
        answer = browser.get(page)
        taken.append((time.perf_counter() - began) * 1000)
    spent = (time.process_time() - before) / _REPEATS * 1000
    kilobytes = len(answer.content) / 1000
    emit(page, quantiles(taken, n=20)[-1], "ms, p95", cpu_ms=spent, kilobytes=kilobytes)


@contextmanager
def publisher(entries: int) -> Iterator[str]:
    """Serve queues in a process of its own, so that only the console's time is ours."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_publish, args=(entries, theirs))
    child.start()
    try:
        yield str(ours.recv())
    finally:
        child.terminate()
        child.join()


def _publish(entries: int, told: Any) -> None:
    served = serve(application(filled(entries), SUBSCRIBERS))
    told.send(served.url)
    while True:
        time.sleep(3600)


def serve(app: Any) -> Served:
    return Served(SimpleNamespace(service=SimpleNamespace(app=app)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
