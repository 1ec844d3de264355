"""What the days after the first cost: snapshot and audit of a site of which some pages change.

    python -m tests.bench.pipeline.daily [--changed 0.01] [--removed 0] [--days 1]
        [--text-bytes 4900] [--together] [--apart] [SIZE …]

The first day archives everything, makes a snapshot from nothing and audits by it. On each day after
it pages change (spread over the site, or neighbours with `--together`): most are distributed again,
some of them are removed. Then the tasks run again.
`run` has snapshot and audit in one session; with `--apart` each is a program of its own, as the
archive always is. CPU seconds are those of the tasks' processes, Postgres' own are not among them.
"""

import argparse
import json
import random
import uuid
from collections.abc import Iterator
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


def _changed(size: int, day: int, options: argparse.Namespace) -> Iterator[tuple[int, bool]]:
    """Yield which pages change on a day, and whether they go."""
    source, count = random.Random(day), max(1, int(size * options.changed))
    numbers = range(count) if options.together else source.sample(range(size), count)
    removed = set(source.sample(numbers, int(count * options.removed)))
    return ((number, number in removed) for number in sorted(numbers))


def _after(number: int, day: int, given: list[str]) -> Node:
    before = page(number, given)
    # In the order of members in which PostgreSQL writes JSON, as exported content has it.
    properties = {"n": number, "day": day, "text": given[(number + day) % len(given)]}
    return Node(before.path, before.type, json.dumps(properties))


def _run(bench: Bench, environment: dict[str, str], day: str, *, apart: bool) -> None:
    after = [(task,) for task in _AFTER] if apart else [("run", *_AFTER)]
    for task in [("archive",), *after]:
        run = run_task(environment, *task)
        memory = {"python_mib": run.python_mib, "jvm_mib": run.jvm_mib}
        name, unit = f"{' '.join(task)}, {day}", "s of CPU"
        emit(name, run.cpu_s, unit, size=bench.size, wall_s=run.wall_s, **memory)


_UPSERT = """
INSERT INTO content.node (path, type, properties, binaries) VALUES (%s, %s, %s, '{}')
ON CONFLICT (path) DO UPDATE SET properties = excluded.properties
"""


def _imported(connection: psycopg.Connection, node: Node | str) -> None:
    if isinstance(node, Node):
        connection.execute(_UPSERT, (node.path, node.type, node.properties))
    else:
        connection.execute("DELETE FROM content.node WHERE path = %s", (node,))


def _distribute(
    journal_url: str, blobs: str, nodes: Iterator[Node | str], first: int, subscriber: str
) -> None:
    """Append a package for each node or path, and let the subscriber have imported them."""
    store, producer = open_blobs(blobs), str(uuid.uuid4())
    journal = open_journal(journal_url, client_name="bench")
    with psycopg.connect(subscriber) as connection:

        def packages() -> Iterator[Outgoing]:
            for sequence, node in enumerate(nodes):
                _imported(connection, node)
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
    blobs, first = environment["PACKHORSE_BLOBS_URL"], bench.size
    for day in range(2, 2 + options.days):
        changed = list(_changed(bench.size, day, options))
        nodes = (
            page(number, given).path if goes else _after(number, day, given)
            for number, goes in changed
        )
        _distribute(journal_url, blobs, nodes, first, subscriber)
        first += len(changed)
        _run(bench, environment, f"day {day}, {len(changed)} changed", apart=options.apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000])
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--removed", type=float, default=0.0)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--text-bytes", type=int, default=4_900)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    for size in options.sizes:
        with running_postgres() as server, _bench(server, size) as bench:
            measure(bench, options)


if __name__ == "__main__":
    main()
