"""What queues cost: memory, lengths, the overview, a page.

    python -m tests.bench.queues [ENTRIES]

Prints one JSON line a measurement: processor time, and memory as Python's allocator counts it.
The anchor is a list of objects whose length is counted by walking it, in the same run.
"""

import asyncio
import gc
import itertools
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from packhorse.clock import SystemClock
from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.readiness import Readiness
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageBody,
    PackageEntry,
    PackageMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import decode_entry, encode_package
from packhorse_services.publisher.commands.issuing import CommandIssuer
from packhorse_services.publisher.http import command_routes, queue_routes
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache, QueueLength
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.history.answering import QueueLag, QueueLags
from packhorse_services.publisher.queues.history.sample_rows import HistoryWindow
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.bench.reporting import emit

AGENT, PATH = "main", "/content/site/page-%07d"
SUBSCRIBERS = 1_000
_BATCH = 2_000


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    memory(entries)
    lengths(entries)
    overview(entries)


def package(number: int, accepted_ms: int, body: bytes | None = None) -> Outgoing:
    entry = PackageEntry(
        package_id=f"dstrpck-{accepted_ms}-{os.urandom(8).hex()}",
        publisher_agent=AGENT,
        action=Action.ADD,
        paths=(PATH % number,),
        user="alice",
        producer="5f0c6f2e",
        epoch=1,
        sequence=number,
        body_length=5_000,
        node_count=1,
        accepted_ms=accepted_ms,
    )
    stored = None if body is None else PackageBody(b"x" * 32, len(body), body)
    encoded = encode_package(PackageMessage(entry, stored))
    return Outgoing(encoded.value, encoded.headers)


def batches(count: int) -> Iterator[list[Record]]:
    """Yield records as a reader without values gives them, made while they are read."""
    now = int(time.time() * 1000)
    for start in range(0, count, _BATCH):
        yield [
            Record("p", 0, offset, now + offset + 3, None, one.headers, b"")
            for offset in range(start, min(count, start + _BATCH))
            for one in (package(offset, now + offset),)
        ]


def filled(entries: int) -> QueueCache:
    cache = QueueCache(AGENT)
    for batch in batches(entries):
        cache.extend(batch)
    return cache


def memory(entries: int) -> None:
    """Bytes an entry beside its path, against a list of objects."""
    taken = traced(lambda: filled(entries)) / entries - len(PATH % 0)
    naive = traced(lambda: objects(entries // 10)) * 10 / entries - len(PATH % 0)
    emit("memory", taken, "bytes an entry, beside its path", anchor=("objects", naive))


def objects(entries: int) -> list[PackageEntry]:
    return [decode_entry(record.headers) for batch in batches(entries) for record in batch]


def traced(make: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = make()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del made
    return used


def lengths(entries: int) -> None:
    """The length of a queue, for caches of three sizes."""
    for size in (entries // 100, entries // 10, entries):
        cache = filled(size)
        offsets, walked = itertools.cycle(range(0, size, max(1, size // 997))), range(size)
        measured = spent(partial(length, cache, offsets), 20_000) * 1e6
        naive = spent(partial(walk, walked), 3) * 1e6
        emit(f"length_{size}", measured, "µs of CPU", anchor=("walking a list", naive))


def length(cache: QueueCache, offsets: Iterator[int]) -> QueueLength:
    return cache.extent(next(offsets))


def walk(offsets: Iterable[int]) -> int:
    """Count a queue as a list would."""
    return sum(1 for one in offsets if one > 7)


def overview(entries: int) -> None:
    """What a request costs the service, JSON and all, with 100 and with 1,000 subscribers."""
    cache = filled(entries)
    for count in (100, SUBSCRIBERS):
        app = application(cache, count)
        for name, path in (
            (f"overview_{count}", "/queues"),
            (f"subscribers_{count}", "/subscribers"),
            ("page_100", "/queues/s7?limit=100"),
            ("page_100_deep", f"/queues/s{count - 1}?limit=100&cursor={CURSOR}"),
            ("page_filtered_none", "/queues/s7?path_prefix=/content/none"),
        ):
            if count == 100 or "page" not in name:
                emit(name, asyncio.run(request_cost(app, path)) * 1e3, "ms of CPU", entries=entries)
    naive = spent(partial(walk, range(entries)), 3) * 100
    emit("overview_100_by_walking", naive * 1e3, "ms of CPU", entries=entries)


CURSOR = "bzUw"
"""Behind offset 50."""


class Histories:
    """Lags of the last hour as a publisher has them, no two the same."""

    def __init__(self, subscribers: int) -> None:
        self._queues = [
            QueueLag(
                subscriber=f"s{number}",
                lag_seconds=[(number * 37 + point * 101) % 997 for point in range(30)],
                rate=number,
            )
            for number in range(subscribers)
        ]

    async def all(self, window: HistoryWindow) -> QueueLags:
        step = window.step * 60
        since = datetime.now(UTC)
        return QueueLags(agent=AGENT, since=since, step_seconds=step, queues=self._queues)


def application(cache: QueueCache, count: int) -> Any:
    journal = open_journal(f"memory://bench-{count}", client_name="bench")
    journal.create_topics([TopicSpec("p")])
    feed = QueueFeed(journal, "p", cache, clock=SystemClock())
    feed.identity = journal.identity("p")
    feed._begun.set()
    subscribers = Subscribers(SystemClock(), AGENT)
    for number in range(count):
        state = SubscriberState(AGENT, number * (cache.next // count) - 1)
        subscribers.note(announcement(f"s{number}", state), True)
    queues = Queues(feed, subscribers, ErrorCounts(), SystemClock())
    nobody = Authenticator.off()
    app = create_app(ServiceDescription("bench", "bench"), nobody, Readiness({}))
    add_routes(app, queue_routes.router, command_routes.router)
    commands = CommandIssuer(None, journal, "p", queues, None)  # type: ignore[arg-type]
    app.state.publisher = SimpleNamespace(
        queues=queues, agent=AGENT, commands=commands, histories=Histories(count)
    )
    return app


def announcement(name: str, state: SubscriberState) -> Record:
    encoded = encode_discovery(DiscoveryMessage(name, (state,), editable=True))
    return Record("d", 0, 0, int(time.time() * 1000), name, encoded.headers, encoded.value)


async def request_cost(app: Any, path: str) -> float:
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200, message

    rounds = 30
    for _ in range(3):
        await app({**scope, "state": {}}, receive, send)
    before = time.process_time()
    for _ in range(rounds):
        await app({**scope, "state": {}}, receive, send)
    return (time.process_time() - before) / rounds


def spent(action: Callable[[], object], rounds: int) -> float:
    """Return the processor time of one call, in seconds."""
    before = time.process_time()
    for _ in range(rounds):
        action()
    return (time.process_time() - before) / rounds


if __name__ == "__main__":
    main()
