"""Importing a backlog: a subscriber's process beside what a user would run instead.

    python -m tests.bench.importing [--packages N] [--nodes 1,11] [--rounds N] [--only NAMES]

Realistic pages of 5 KB together, a server of its own, fsync and synchronous commits on. In each
round every way imports the same packages into a fresh database; then the nodes' hash is compared
with that of the pages themselves. Prints one JSON line a measurement: medians over the rounds, and
the CPU of all processes that work for it, Postgres' included; the broker's beside it.

kafka, sql        `python -m packhorse_services.subscriber` on either journal
watched           the same from SQL, where somebody watches all content; only when it is named
filtered          the same from SQL, with a filter of 100 rules; only when it is named
mapped            the same from SQL, with 100 mapped paths; only when it is named
stripped          the same from SQL, with 100 names of properties; only when it is named
profile           the same from SQL: writes build/profiles/import.svg; only when it is named
debezium          Kafka Connect standalone with Debezium's JDBC sink, from a topic of the bare pages
replication       Postgres' logical replication, sender and receiver
loop              what a user would write: decode, one transaction a package (fewer packages)
copy              COPY of the nodes as they are at the end
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench.importing.debezium import Debezium
from tests.bench.importing.local import copy, loop, replication
from tests.bench.importing.material import Material, material
from tests.bench.importing.measuring import Cost
from tests.bench.importing.product import filtered, mapped, product, stripped
from tests.bench.reporting import emit
from tests.harness.kafka.broker import running_kafka
from tests.harness.postgres import Databases, running_postgres

_WAYS: dict[str, Callable[[Material], Cost]] = {
    "kafka": lambda made: product(made, "kafka"),
    "sql": lambda made: product(made, "sql"),
    "watched": lambda made: product(made, "sql", watched=True),
    "filtered": lambda made: product(made, "sql", rules=filtered),
    "mapped": lambda made: product(made, "sql", rules=mapped),
    "stripped": lambda made: product(made, "sql", rules=stripped),
    "profile": lambda made: product(made, "sql", profile=Path("build/profiles/import.svg")),
    "debezium": Debezium(),
    "replication": replication,
    "loop": loop,
    "copy": copy,
}


_NAMED_ONLY = ("watched", "filtered", "mapped", "stripped", "profile")
_ANCHORS = ("debezium", "replication", "loop", "copy")
_PARTS = ("program_us", "postgres_us", "broker_us", "cpu_us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=30_000)
    parser.add_argument("--nodes", default="1,11")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only",
        default=",".join(name for name in _WAYS if name not in _NAMED_ONLY),
        help="names, with commas between them",
    )
    options = parser.parse_args()
    ways = {name: _WAYS[name] for name in options.only.split(",")}
    with running_postgres() as server, running_kafka() as broker:
        databases = Databases(server)
        for nodes in map(int, options.nodes.split(",")):
            with material(databases, broker, options.packages, nodes) as made:
                compare(ways, made, options.rounds)


def compare(ways: dict[str, Callable[[Material], Cost]], made: Material, rounds: int) -> None:
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            costs[name].append(run(made))
            sys.stderr.write(f"{name}: {costs[name][-1]}\n")
    for name, found in costs.items():
        report(f"{name}_{made.nodes}", found)
    for ours in ("kafka", "sql"):
        for anchor in _ANCHORS:
            if ours in costs and anchor in costs:
                beside(f"{ours}_beside_{anchor}_{made.nodes}", costs[ours], costs[anchor])


def report(name: str, costs: list[Cost]) -> None:
    """Print the medians; microseconds are those of CPU a package."""

    def middle(part: str) -> float:
        return statistics.median(getattr(one, part) for one in costs)

    parts = {part: middle(part) for part in _PARTS}
    emit(name, middle("rate"), "packages/s", **parts, rounds=len(costs))


def beside(name: str, ours: list[Cost], anchor: list[Cost]) -> None:
    """Print how many times an anchor's rate and CPU ours has, round by round: above 1 is better."""
    pairs = list(zip(ours, anchor, strict=True))
    rate = statistics.median(a.rate / b.rate for a, b in pairs)
    cpu = statistics.median(b.cpu_us / a.cpu_us for a, b in pairs)
    emit(name, rate, "times its rate", by_cpu=cpu, rounds=len(pairs))


if __name__ == "__main__":
    main()
