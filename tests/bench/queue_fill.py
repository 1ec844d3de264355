"""What it costs to fill the queue cache from a journal, reading included.

    python -m tests.bench.queue_fill [RECORDS]

Prints one JSON line a journal, in entries a second of this process's processor time: with Kafka
that includes the client's threads, which fetch the bodies too. `reading_alone` is the journal's
part; the anchor makes an object of each entry.
"""

import os
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future

from packhorse.messaging.api import Appended, Journal
from packhorse.messaging.open import open_journal
from packhorse.wire.package_codec import decode_entry
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.ranges import RangeFetch, Ranges
from tests.bench.queues import AGENT, package, spent
from tests.bench.reporting import emit
from tests.harness.journals import create
from tests.harness.kafka.broker import running_kafka
from tests.harness.postgres import Databases, running_postgres

_BODY = os.urandom(5_000)
_IN_FLIGHT = 2_000


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with running_postgres() as server:
        journal = open_journal(Databases(server).new("journal"), client_name="bench")
        fill("sql", journal, records)
    with running_kafka() as broker:
        fill("kafka", open_journal(broker.url, client_name="bench"), records)


def fill(name: str, journal: Journal, records: int) -> None:
    topic = create(journal)
    append(journal, topic, records)
    read = [spent(lambda: drain(journal, topic, records), 1) for _ in range(3)]
    cached = [spent(lambda: fetch(journal, topic, records), 1) for _ in range(3)]
    naive = spent(lambda: walk(journal, topic, records), 1)
    emit(
        name,
        records / min(cached),
        "entries a CPU-second",
        anchor=("an object an entry", records / naive),
        reading_alone=records / min(read),
    )
    journal.close()


def append(journal: Journal, topic: str, records: int) -> None:
    pending: deque[Future[Appended]] = deque()
    for number in range(records):
        outgoing = package(number, int(time.time() * 1000), _BODY)
        pending.append(journal.append(topic, outgoing))
        if len(pending) >= _IN_FLIGHT:
            pending.popleft().result()
    for future in pending:
        future.result()


def fetch(journal: Journal, topic: str, records: int) -> None:
    cache = QueueCache(AGENT, records)
    RangeFetch(Ranges(journal, topic, threading.Event()), cache).fetch_above(-1)
    assert cache.extent(-1).length == records


def drain(journal: Journal, topic: str, records: int) -> None:
    for batch in Ranges(journal, topic, threading.Event()).batches(0, records):
        records -= len(batch)
    assert records == 0


def walk(journal: Journal, topic: str, records: int) -> None:
    ranges = Ranges(journal, topic, threading.Event())
    kept = [decode_entry(one.headers) for batch in ranges.batches(0, records) for one in batch]
    assert len(kept) == records


if __name__ == "__main__":
    main()
