"""What the second day costs: snapshot and audit of a site of which some pages have changed.

    python -m tests.bench.pipeline.daily [--changed 0.01] [--text-bytes 4900] [--together]
        [--apart] [SIZE …]

The first day archives everything, makes a snapshot from nothing and audits by it; then pages are
distributed again (spread over the site, or neighbours with `--together`), and the tasks run again.
`run` has snapshot and audit in one session; with `--apart` each is a program of its own, as the
archive always is. CPU seconds are those of the tasks' processes, Postgres' own are not among them.
"""

import argparse
import json
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.api import Outgoing
from packhorse.messaging.open import open_journal
from tests.bench.pipeline.__main__ import Bench, _bench
from tests.bench.pipeline.material import (
    TOPICS,
    append_all,
    feed,
    fill_tree,
    package_of,
    page,
    texts,
)
from tests.bench.pipeline.measuring import run_task
from tests.bench.reporting import emit
from tests.harness.postgres import running_postgres

_AFTER = ("snapshot", "audit")


def _changed(size: int, share: float, *, together: bool) -> Sequence[int]:
    count = max(1, int(size * share))
    return range(count) if together else sorted(random.Random(7).sample(range(size), count))


def _after(number: int, given: list[str]) -> Node:
    before = page(number, given)
    # In the order of members in which PostgreSQL writes JSON, as exported content has it.
    properties = {"n": number, "day": 2, "text": given[(number + 1) % len(given)]}
    return Node(before.path, before.type, json.dumps(properties))


def _run(bench: Bench, environment: dict[str, str], day: str, *, apart: bool) -> None:
    after = [(task,) for task in _AFTER] if apart else [("run", *_AFTER)]
    for task in [("archive",), *after]:
        run = run_task(environment, *task)
        memory = {"python_mib": run.python_mib, "jvm_mib": run.jvm_mib}
        name, unit = f"{' '.join(task)}, {day}", "s of CPU"
        emit(name, run.cpu_s, unit, size=bench.size, wall_s=run.wall_s, **memory)


def _distribute(
    journal_url: str, blobs: str, nodes: Iterator[Node], first: int, subscriber: str
) -> None:
    """Append a package for each node, and let the subscriber have imported them."""
    store, producer = open_blobs(blobs), str(uuid.uuid4())
    journal = open_journal(journal_url, client_name="bench")
    with psycopg.connect(subscriber) as connection:

        def packages() -> Iterator[Outgoing]:
            for sequence, node in enumerate(nodes):
                connection.execute(
                    "UPDATE content.node SET properties = %s WHERE path = %s",
                    (node.properties, node.path),
                )
                yield package_of(node, first + sequence, producer, sequence, store)

        append_all(journal, packages())
        last = journal.bounds(TOPICS.package).next - 1
        connection.execute("UPDATE bookkeeping.position SET log_offset = %s", (last,))
    journal.close()


def measure(bench: Bench, options: argparse.Namespace) -> None:
    journal_url = bench.databases.new("journal")
    journal = open_journal(journal_url, client_name="bench")
    given = texts(options.text_bytes)
    feed(journal, str(bench.folder / "blobs"), bench.size, given)
    journal.close()
    environment: dict[str, Any] = bench._environment("daily", journal_url)
    subscriber = bench.databases.new("subscriber")
    fill_tree(subscriber, bench.size, given)
    bench._place(subscriber, journal_url)
    environment["PACKHORSE_SUBSCRIBER_DATABASES"] = json.dumps({"sub": subscriber})
    _run(bench, environment, "from nothing", apart=options.apart)
    numbers = _changed(bench.size, options.changed, together=options.together)
    nodes = (_after(number, given) for number in numbers)
    blobs = environment["PACKHORSE_BLOBS_URL"]
    _distribute(journal_url, blobs, nodes, bench.size, subscriber)
    _run(bench, environment, f"{len(numbers)} changed", apart=options.apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000])
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--text-bytes", type=int, default=4_900)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    for size in options.sizes:
        with running_postgres() as server, _bench(server, size) as bench:
            measure(bench, options)


if __name__ == "__main__":
    main()
