"""What the figures of `make bench` should be, and why where they are not."""

from collections.abc import Callable, Sequence
from operator import ge, le
from typing import Any, NamedTuple


class Target(NamedTuple):
    """A limit for a figure: benchmark, name of the line and field, with dots between them."""

    what: str
    figure: str
    limit: str

    def measured(self, lines: Sequence[dict[str, Any]]) -> float:
        """Return the figure. Raises `StopIteration` when no line has it."""
        bench, name, field = self.figure.split(".")
        wanted = (bench, name)
        return next(one[field] for one in lines if (one["bench"], one["name"]) == wanted)

    def because(self) -> str:
        """Return why the figure is missed where it is."""
        whole = _BECAUSE.get(self.figure.partition(".")[0], "the host's speed, as said above")
        return _BECAUSE.get(self.figure, whole)

    def met(self, measured: float) -> bool:
        """Return whether a figure keeps to the limit."""
        sign, _, rest = self.limit.partition(" ")
        compare: Callable[[float, float], bool] = ge if sign == "≥" else le
        return compare(measured, float(rest.split()[0].replace(",", "")))


_BECAUSE = {
    "importing": "decoding and checks, [ADR 0067](adr/0067-stored-form-stays-jsonb.md)",
    "publish": "HTTP, and a thread woken for each exchange with Postgres,"
    " [profile](scaling.md#where-the-processor-time-goes)",
    "idle.cpu.value": "heartbeats and leases of 11 programs, [ADR 0132](adr/0132-rest-again.md)",
    "queue_fill": "librdkafka fetches the bodies too: reading alone costs more than the limit",
}
"""Why a figure, or those of a benchmark, miss their targets where they do."""

TARGETS = (
    Target(
        "import: how many times our CPU Debezium's JDBC sink takes",
        "importing.kafka_beside_debezium_1.by_cpu",
        "≥ 1.3",
    ),
    Target("import: rate beside Debezium's", "importing.kafka_beside_debezium_1.value", "≥ 1.5"),
    Target(
        "import: how many times our CPU logical replication takes",
        "importing.sql_beside_replication_1.by_cpu",
        "≥ 0.9",
    ),
    Target("import: rate beside a user's own loop", "importing.kafka_beside_loop_1.value", "≥ 15"),
    Target("import of 11 nodes a package, CPU of both", "importing.kafka_11.cpu_us", "≤ 170 µs"),
    Target(
        "distribute, 32 clients with key, CPU of the publisher",
        "publish.distribute_with_key.server_cpu_us",
        "≤ 600 µs",
    ),
    Target(
        "the same, rate as a share of an empty answer's",
        "publish.distribute_with_key.ratio",
        "≥ 0.17",
    ),
    Target(
        "distribute, one client, CPU of the publisher",
        "publish.distribute_alone.server_cpu_us",
        "≤ 1,500 µs",
    ),
    Target(
        "distribute, one client, statements of all sessions",
        "publish.statements_alone.value",
        "≤ 10 statements",
    ),
    Target("`--from-file`", "publish.from_file.value", "≥ 1,000 lines/s"),
    Target(
        "SQL journal, 8 writers, each with one record in flight",
        "journal_append.append_5kb_window_1.value",
        "≥ 5,000 records/s",
    ),
    Target("cache fill from Kafka", "queue_fill.kafka.value", "≥ 150,000 entries a CPU-second"),
    Target("`Prefer: wait`, SQL journal, median", "waiting.awaited_sql.value", "≤ 40 ms"),
    Target("the same, 99 %", "waiting.awaited_sql.p99_ms", "≤ 150 ms"),
    Target("`Prefer: wait`, Kafka, median", "waiting.awaited_kafka.value", "≤ 40 ms"),
    Target("the same, 99 %", "waiting.awaited_kafka.p99_ms", "≤ 150 ms"),
    Target("`packhorse up` with 3 subscribers, until ready", "idle.ready.value", "≤ 5 s"),
    Target("the same, CPU until ready", "idle.ready.cpu_s", "≤ 6 s"),
    Target("the same at rest, CPU", "idle.cpu.value", "≤ 3 % of a core"),
    Target("the same at rest, memory", "idle.memory.value", "≤ 650 MB"),
    Target(
        "the same at rest, connections to Postgres", "idle.connections.value", "≤ 40 connections"
    ),
    Target("the same at rest, threads of a program", "idle.most_threads.value", "≤ 20 threads"),
)
