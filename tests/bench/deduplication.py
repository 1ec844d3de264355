"""What deduplication costs: a verdict alone, and appends with it beside appends without it.

    python -m tests.bench.deduplication [RECORDS] [sql|kafka]

Prints one JSON line a measurement. Appends with and without deduplication take turns, in batches
of the same size, each on a topic of its own; medians of the rounds are compared. A restart replays
what no snapshot knows.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.deduplicated import Answer, DeduplicatedLog
from packhorse.messaging.deduplication import Deduplication, DeduplicationVerdict
from packhorse.messaging.known_log import MemoryLimits
from packhorse.messaging.numbered import Numbered
from packhorse.messaging.open import open_journal
from tests.bench.reporting import emit
from tests.harness.deduplication import MemorySnapshots
from tests.harness.journals import create
from tests.harness.kafka.broker import running_kafka
from tests.harness.postgres import Databases, running_postgres

_ROUNDS = 5
_PRODUCERS = 10_000
_VALUE = os.urandom(1_000)


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    verdicts()
    with journal_on(sys.argv[2] if len(sys.argv) > 2 else "sql") as journal:
        for batch in (1, 100):
            appends(journal, records if batch > 1 else records // 10, batch)
        restarts(journal, records)


@contextmanager
def journal_on(backend: str) -> Iterator[Journal]:
    with ExitStack() as stack:
        if backend == "kafka":
            url = stack.enter_context(running_kafka()).url
        else:
            url = Databases(stack.enter_context(running_postgres())).new("bench")
        yield stack.enter_context(closing(open_journal(url, client_name="bench")))


def verdicts() -> None:
    """One check and one confirmation a message, of very many producers in turn."""
    names = [f"producer-{number}" for number in range(_PRODUCERS)]
    state = Deduplication(_PRODUCERS)
    rounds = 20

    def new() -> None:
        for sequence in range(rounds):
            for name in names:
                assert state.check(name, sequence) is DeduplicationVerdict.NOT_DUP
                state.persisted(name, sequence)

    def duplicates() -> None:
        for sequence in range(rounds):
            for name in names:
                assert state.check(name, sequence) is DeduplicationVerdict.DUP

    for what, work in (("new", new), ("duplicate", duplicates)):
        start = time.process_time()
        work()
        seconds = time.process_time() - start
        emit(f"dedup_check_{what}", rounds * _PRODUCERS / seconds, "checks a CPU-second")


def appends(journal: Journal, records: int, batch: int) -> None:
    """The same records in the same batches, without and with deduplication, in turns."""
    plain, numbered = create(journal), create(journal)
    log = DeduplicatedLog(journal, numbered, MemorySnapshots(), name="bench")
    sequence = iter(range(10**9))

    def without(count: int) -> None:
        futures = [journal.append(plain, Outgoing(_VALUE)) for _ in range(count)]
        for future in futures:
            future.result()

    def with_it(count: int) -> None:
        outcomes = log.append_all(
            [Numbered("bench", 1, next(sequence), Outgoing(_VALUE)) for _ in range(count)]
        )
        assert all(isinstance(outcome, Answer) for outcome in outcomes)

    variants: dict[str, Callable[[int], None]] = {"without": without, "with": with_it}
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(_ROUNDS):
        for name, append in variants.items():
            began, used = time.perf_counter(), time.process_time()
            for _ in range(records // batch):
                append(batch)
            wall[name].append(records / (time.perf_counter() - began))
            cpu[name].append((time.process_time() - used) / records * 1e6)
    for name in variants:
        emit(f"append_batch_{batch}_{name}", statistics.median(wall[name]), "records/s")
        emit(f"append_batch_{batch}_{name}_cpu", statistics.median(cpu[name]), "µs of CPU a record")


def restarts(journal: Journal, records: int) -> None:
    """How long a new process takes to know all sequences, without and with a snapshot."""
    topic, store = create(journal), MemorySnapshots()
    first = DeduplicatedLog(journal, topic, store, name="bench")
    names = [f"producer-{number % 1_000}" for number in range(records)]
    for begin in range(0, records, 500):
        part = range(begin, min(begin + 500, records))
        first.append_all([Numbered(names[n], 1, n, Outgoing(_VALUE)) for n in part])
    for what in ("replay", "snapshot"):
        restarted = DeduplicatedLog(journal, topic, store, name="bench", limits=MemoryLimits())
        began, used = time.perf_counter(), time.process_time()
        assert restarted.last_sequence(names[-1]) == records - 1
        emit(f"restart_by_{what}", (time.perf_counter() - began) * 1000, "ms")
        emit(f"restart_by_{what}_cpu", (time.process_time() - used) * 1000, "ms")
        restarted.take_snapshot()


if __name__ == "__main__":
    main()
