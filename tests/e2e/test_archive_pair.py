"""Two live archives on one checkpoint; `--continuous`, its metrics, and its end by SIGTERM.

With the author's database one of them has the lease, and the other waits for it. Without it, on
Kafka with tables on S3, the tables alone decide.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.cli.stack.ports import free_ports
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive import everything_in, fill
from tests.harness.archive_site import places
from tests.harness.journals import fresh_name
from tests.harness.processes import Process
from tests.harness.spark import spark_environment
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PATIENCE_S = 600.0
STARVED = "failed to connect back"
"""The last words of a run whose Spark waited 10 s in vain for a process to begin."""
WRONG = 2
"""The exit code by which a supervisor does not start it again."""


class Continuous(Process):
    """A run of `archive --continuous`, with its metrics on a port of its own, and of `measures`."""

    def __init__(self, name: str, port: int, settings: dict[str, str], folder: Path) -> None:
        command = ("archive", "--continuous", "--interval", "1", "--metrics-port", str(port))
        program = (sys.executable, "-m", "packhorse_services.pipeline", "run")
        super().__init__(name, (*program, shlex.join(command), "measures"), settings, folder)
        self.port = port

    def metric(self, name: str) -> float:
        """Return what it says now; 0 before it says so."""
        assert self.running, self.said()
        try:
            text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=120).text
        except httpx.TransportError:
            return 0.0
        found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(found[0]) if found else 0.0


def has_jvm(run: Process) -> bool:
    """Return whether a JVM of its process group runs, also when it has ended itself."""
    java = re.compile(rf"\d+ \(java\) \w \d+ {run.pid} ")
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # that one has ended
            if java.match(file.read_text()):
                return True
    return False


class Pair:
    """Two archives of one journal into the same tables."""

    def __init__(self, url: str, tables_url: str, folder: Path, **more: str) -> None:
        prefix = fresh_name()
        self.topics = Topics.named(prefix, {})
        self.location = Location.parse(tables_url)
        self.journal: Journal = open_journal(url, client_name="tests")
        self.numbers = 0
        settings = {
            **spark_environment(),
            "PACKHORSE_HOST": "127.0.0.1",
            "PACKHORSE_JOURNAL_URL": url,
            "PACKHORSE_BLOBS_URL": str(folder / "blobs"),
            "PACKHORSE_TABLES_URL": tables_url,
            "PACKHORSE_TOPIC_PREFIX": prefix,
            **more,
        }
        ports = zip(("first", "second"), free_ports(2), strict=True)
        self.runs = [Continuous(name, port, settings, folder) for name, port in ports]

    def fill(self) -> None:
        """Append a package."""
        fill(self.journal, self.topics, [self.numbers], [self.topics.package])
        self.numbers += 1

    def ended(self) -> Continuous | None:
        """Return a run that has ended; start again what the machine was too busy for.

        Whatever supervises it would do that, too.
        """
        for run in self.runs:
            if not run.running and STARVED not in spoken(run)[1]:
                return run
            if not run.running:
                run.start()
        return None

    def is_whole(self) -> bool:
        """Return whether the tables have all records; fail when they have one twice."""
        expected = everything_in(self.journal, self.topics)
        found = places(self.location, tables.BRONZE)
        packages = places(self.location, tables.PACKAGES)
        assert len(found) == len(set(found)), "a record is in bronze twice"
        assert len(packages) == len(set(packages)), "a record is among the packages twice"
        wanted = {place[1:] for place in expected if place[0] == self.topics.package}
        return set(found) == set(expected) and set(packages) == wanted


def spoken(run: Process) -> tuple[list[dict[str, Any]], str]:
    """Return the records of its log, and its last line.

    Between them, Spark's own worker processes may complain of a query that ended while they began.
    """
    lines = run.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")], "".join(lines[-1:])


def has_fallen(run: Process) -> bool:
    """Return whether it has ended by an exception that nobody has dealt with."""
    return "packhorse_services/pipeline/__main__.py" in run.log.read_text()


@pytest.fixture
def leased(database_url: str, tmp_path: Path) -> Iterator[Pair]:
    tables_url = str(tmp_path / "tables")
    yield from _ended(Pair(database_url, tables_url, tmp_path, PACKHORSE_DATABASE_URL=database_url))


@pytest.fixture
def unleased(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    kafka, s3 = (request.getfixturevalue(name) for name in ("kafka", "s3"))
    yield from _ended(Pair(kafka.url, s3.url(f"pair-{tmp_path.name}"), tmp_path))


def _ended(pair: Pair) -> Iterator[Pair]:
    try:
        yield pair
    finally:
        for run in pair.runs:
            if run.running:
                run.kill()
        pair.journal.close()


def at_work(run: Continuous) -> None:
    """Start a run, and wait until it has archived a batch and says so."""
    run.start()
    counted = 'packhorse_pipeline_records_total{query="archive"}'
    eventually(lambda: run.metric(counted) >= 1, timeout=PATIENCE_S, interval=0.5)
    names = ("last_batch_seconds", "batch_seconds_count")
    reported = [f'packhorse_pipeline_{name}{{query="archive"}}' for name in names]
    eventually(
        lambda: all(run.metric(name) > 0 for name in reported), timeout=PATIENCE_S, interval=0.5
    )
    assert has_jvm(run)


def assert_ends_in_order(run: Continuous) -> None:
    assert run.running, run.said()
    assert run.stop(PATIENCE_S) == 1, run.said()
    assert "not run: measures" in run.log.read_text()
    assert not has_jvm(run)
    assert not has_fallen(run), run.said()


def test_of_two_live_archives_one_waits_until_the_other_has_ended(leased: Pair) -> None:
    leased.fill()
    first, second = leased.runs
    at_work(first)
    second.start()
    leased.fill()
    eventually(lambda: "waiting for another run" in second.log.read_text(), timeout=PATIENCE_S)
    assert not has_jvm(second), "what waits costs no JVM"
    assert_ends_in_order(first)
    leased.runs.remove(first)
    leased.fill()
    eventually(lambda: leased.ended() or leased.is_whole(), timeout=PATIENCE_S, interval=1.0)
    assert_ends_in_order(second)
    assert leased.is_whole()


@pytest.mark.kafka
@pytest.mark.depth
def test_of_two_live_archives_one_ends_and_nothing_is_there_twice(unleased: Pair) -> None:
    pair = unleased
    pair.fill()
    first, second = pair.runs
    at_work(first)
    second.start()

    def one_that_has_ended() -> Continuous | None:
        pair.fill()
        return pair.ended()

    loser = eventually(one_that_has_ended, timeout=PATIENCE_S, interval=2.0)
    assert loser is not None
    winner = second if loser is first else first
    assert loser.wait() == WRONG, loser.said()
    logged, last = spoken(loser)
    assert "another run" in last, loser.said()
    assert "end" in last
    assert not [record for record in logged if record["level"] == "error"], loser.said()
    assert not has_fallen(loser), loser.said()
    assert not has_jvm(loser)
    pair.fill()

    pair.runs.remove(loser)
    eventually(lambda: pair.ended() or pair.is_whole(), timeout=PATIENCE_S, interval=1.0)
    assert_ends_in_order(winner)
    assert pair.is_whole()
