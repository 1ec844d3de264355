"""What the pipeline's tasks cost, and how that grows: each as its own process, from nothing.

    python -m tests.bench.pipeline [--plot FILE] [--figures archive,fold,audit,bulk] [SIZE …]

Prints one JSON line a measurement, then all of them as a table and a plot. A rate leaves out what
the same command takes when there is nothing (or one page) to do: the start of the JVM; `whole` does
not, and stands alone where the start is nearly all. The heap is the default one.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from packhorse.messaging.open import open_journal
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.bench.pipeline import anchors
from tests.bench.pipeline.material import AGENT, ROOT, TOPICS, feed, fill_tree, page
from tests.bench.pipeline.measuring import Run, run_task
from tests.bench.pipeline.picture import show
from tests.bench.reporting import emit
from tests.harness.kafka.broker import running_kafka
from tests.harness.postgres import Databases, running_postgres
from tests.harness.processes import running_programs

_TELLING = 0.25
"""A run that takes less than this much longer than its start has no rate: starts vary as much."""

_FIGURES = ("archive", "fold", "audit", "bulk")


class Bench:
    """The figures of one size; each adds its lines."""

    def __init__(self, databases: Databases, folder: Path, size: int) -> None:
        self.databases, self.folder, self.size = databases, folder, size
        self.lines: list[dict[str, Any]] = []

    def archive_kafka(self) -> None:
        """The archive of a Kafka topic, against Kafka's own consumer."""
        with running_kafka() as broker:
            journal = open_journal(broker.url, client_name="bench")
            feed(journal, str(self.folder / "blobs"), self.size)
            journal.close()
            anchor = anchors.consumer_perf(broker, self.size)
            environment = self._environment("kafka", broker.url)
            first, again = (run_task(environment, "archive") for _ in range(2))
        self._emit("archive from Kafka", "records/s", first, again, ("Kafka's consumer", anchor))

    def archive_sql(self) -> dict[str, str]:
        """The archive of the SQL journal, against a JDBC read of the same rows."""
        url = self.databases.new("journal")
        journal = open_journal(url, client_name="bench")
        feed(journal, str(self.folder / "blobs"), self.size)
        journal.close()
        anchor = anchors.jdbc_read(url, self.size, self.folder / "anchor")
        environment = self._environment("sql", url)
        first, again = (run_task(environment, "archive") for _ in range(2))
        self._emit("archive from SQL", "records/s", first, again, ("a JDBC read", anchor))
        return environment

    def fold(self, environment: dict[str, str]) -> None:
        """A snapshot of all packages; the second one finds the first as its base."""
        first, again = (run_task(environment, "snapshot") for _ in range(2))
        self._emit("snapshot fold", "packages/s", first, again)

    def audit(self, environment: dict[str, str]) -> None:
        """A subscriber that holds everything, against the fold."""
        url = self.databases.new("subscriber")
        fill_tree(url, self.size)
        self._place(url, environment["PACKHORSE_JOURNAL_URL"])
        databases = {"PACKHORSE_SUBSCRIBER_DATABASES": json.dumps({"sub": url})}
        run = run_task(environment | databases, "audit")
        self._emit("audit", "nodes/s", run, None)

    def bulk(self, environment: dict[str, str]) -> None:
        """The tree as parts through the publisher, against the plain exporter."""
        author = self.databases.new("author")
        fill_tree(author, self.size)
        journal = self.databases.new("bulk_journal")
        with running_programs(journal, blobs_url=str(self.folder / "blobs")) as programs:
            publisher = programs.publisher(author)
            programs.start()
            environment = environment | {
                "PACKHORSE_DATABASE_URL": author,
                "PACKHORSE_JOURNAL_URL": journal,
                "PACKHORSE_PUBLISHER_URL": publisher.url,
                "PACKHORSE_PUBLISHER_TOKEN": programs.token,
            }
            start = run_task(environment, "bulk", "--deep", page(0, [""]).path, "--id", "one")
            whole = run_task(environment, "bulk", "--deep", ROOT, "--id", "whole")
        plain = anchors.plain_export(author, self.folder / "plain")
        self._emit(
            "bulk export", "nodes/s", whole, start, ("the plain exporter", self.size / plain)
        )

    def _environment(self, name: str, journal_url: str) -> dict[str, str]:
        return {
            "PACKHORSE_TABLES_URL": str(self.folder / f"tables-{name}"),
            "PACKHORSE_BLOBS_URL": str(self.folder / "blobs"),
            "PACKHORSE_JOURNAL_URL": journal_url,
            "PACKHORSE_LOG_LEVEL": "WARNING",
        }

    def _place(self, url: str, journal_url: str) -> None:
        """Say that the subscriber has imported all packages."""
        journal = open_journal(journal_url, client_name="bench")
        identity, last = journal.identity(TOPICS.package), self.size - 1
        journal.close()
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO bookkeeping.position "
                "(publisher_agent, journal_id, epoch, log_offset, package_id) "
                "VALUES (%s, %s, 1, %s, '')",
                (AGENT, identity, last),
            )

    def _emit(
        self,
        name: str,
        unit: str,
        run: Run,
        idle: Run | None,
        anchor: tuple[str, float] | None = None,
    ) -> None:
        start = idle.wall_s if idle else 0.0
        seconds = run.wall_s - start
        value = self.size / seconds if seconds > _TELLING * start else None
        self.lines.append(
            emit(
                name, value, unit, size=self.size, anchor=anchor,
                whole=round(self.size / run.wall_s),
                wall_s=round(run.wall_s, 1), start_s=round(idle.wall_s, 1) if idle else None,
                cpu_s=round(run.cpu_s, 1), start_cpu_s=round(idle.cpu_s, 1) if idle else None,
                python_mib=round(run.python_mib), jvm_mib=round(run.jvm_mib),
            )
        )  # fmt: skip


@contextmanager
def _bench(server: EmbeddedPostgres, size: int) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="packhorse-bench-"))
    try:
        yield Bench(Databases(server), folder, size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--figures", default=",".join(_FIGURES))
    parser.add_argument("--plot", type=Path, default=Path("build/bench-pipeline.svg"))
    options = parser.parse_args()
    wanted = options.figures.split(",")
    lines: list[dict[str, Any]] = []
    for size in options.sizes:
        with running_postgres() as server, _bench(server, size) as bench:
            if "archive" in wanted:
                bench.archive_kafka()
            environment = bench.archive_sql()
            if "fold" in wanted:
                bench.fold(environment)
            if "audit" in wanted:
                bench.audit(environment)
            if "bulk" in wanted:
                bench.bulk(environment)
            lines += bench.lines
    show(lines, options.plot)


if __name__ == "__main__":
    main()
