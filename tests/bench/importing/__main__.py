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
from tests.bench.queues import emit
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
    base = costs.get("kafka") or next(iter(costs.values()))
    for name, found in costs.items():
        report(f"importing.{name}, {made.nodes} nodes", found, base)


def report(name: str, costs: list[Cost], base: list[Cost]) -> None:
    """Print the medians; `cpu_ratio` and `rate_ratio` compare round by round, above 1 is better."""
    rate = statistics.median(cost.rate for cost in costs)
    pairs = list(zip(costs, base, strict=True))
    emit(
        name,
        rate,
        "packages/s",
        **{
            part: round(statistics.median(getattr(one, part) for one in costs), 1)
            for part in _PARTS
        },
        cpu_of_base=round(statistics.median(a.cpu_us / b.cpu_us for a, b in pairs), 2),
        base_rate_of_it=round(statistics.median(b.rate / a.rate for a, b in pairs), 2),
        rounds=len(costs),
    )


if __name__ == "__main__":
    main()
