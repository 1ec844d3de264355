"""Programs and servers killed and paused again and again, while clients distribute.

Each kind of fault happens at least once, however quick the clients are.
`make test` runs the bounded version on Kafka, whose broker is killed beside Postgres; `make chaos`
the one of 20,000 packages on both journals.
TEST_CHAOS_PACKAGES and TEST_CHAOS_SEED choose another.
"""

import functools
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.chaos import checks, ledger
from tests.chaos.faults import Faults
from tests.chaos.workload import Workload
from tests.harness.journals import everything
from tests.harness.kafka.broker import RunningKafka, running_kafka
from tests.harness.postgres import Databases, running_postgres
from tests.harness.processes import Program, Programs, running_programs
from tests.harness.waiting import eventually

PACKAGES = int(os.environ.get("TEST_CHAOS_PACKAGES", "120"))
SEED = int(os.environ.get("TEST_CHAOS_SEED", "1"))
SETTLED_S = 180.0
FAULT_EVERY_S = 3.0 if PACKAGES >= 1000 else 1.5
SUBSCRIBERS = ("sub1", "sub2")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]


@dataclass
class Scene:
    """Everything of one run."""

    postgres: EmbeddedPostgres
    journal_url: str
    author: str
    databases: dict[str, str]
    programs: Programs
    publishers: list[Program]
    subscribers: list[Program]
    kafka: RunningKafka | None


@contextmanager
def scene(kind: str) -> Iterator[Scene]:
    """Start a server, a journal of `kind`, two publishers and two subscribers."""
    with ExitStack() as stack:
        server = stack.enter_context(running_postgres())
        databases = Databases(server)
        kafka = stack.enter_context(running_kafka()) if kind == "kafka" else None
        journal_url = kafka.url if kafka else databases.new("journal")
        author = databases.new("author")
        own = {name: databases.new(name) for name in SUBSCRIBERS}
        for url in own.values():
            ledger.install(url)
        made = stack.enter_context(running_programs(journal_url))
        publishers = [made.publisher(author), made.publisher(author)]
        subscribers = [
            made.subscriber(name, url, editable=True, start="earliest") for name, url in own.items()
        ]
        made.start()
        yield Scene(server, journal_url, author, own, made, publishers, subscribers, kafka)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=pytest.mark.depth),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
)
def test_nothing_is_lost_or_repeated_whatever_is_killed(kind: str) -> None:
    with scene(kind) as run:
        workload = Workload(
            run.author, [program.url for program in run.publishers], run.programs.token, PACKAGES
        )
        kill_broker = functools.partial(_bounce, run.kafka) if run.kafka else None
        faults = Faults(SEED, run.publishers, run.subscribers, run.postgres, kill_broker)
        samples = _torment(run, workload, faults)
        assert not workload.errors, workload.errors
        _wait_until_imported(run)
        found = _check(run, workload, samples)
        reported = {
            "journal": kind,
            "packages": len(found.packages),
            "appended twice": len(found.repeated),
            "faults": faults.done,
            "retries of clients": workload.retries,
            "samples": sum(map(len, samples.values())),
        }
        print(json.dumps(reported))


def _bounce(broker: RunningKafka) -> None:
    broker.kill()
    broker.start()


def _torment(run: Scene, workload: Workload, faults: Faults) -> dict[str, list[ledger.Sample]]:
    """Run the workload under faults, a quarter of the time without any, and take samples."""
    samples: dict[str, list[ledger.Sample]] = {name: [] for name in run.databases}
    workload.start()
    try:
        for turn in itertools.count():
            if not workload.running:
                break
            if turn % 4 != 3:
                faults.next()
            if faults.all_kinds_happened:
                workload.may_end.set()
            pause_ends = time.monotonic() + FAULT_EVERY_S
            while time.monotonic() < pause_ends and workload.running:
                _supervise(run)
                _take_samples(run, samples)
                time.sleep(0.5)
    finally:
        faults.heal()
        workload.stop()
    assert faults.all_kinds_happened, faults.done
    return samples


def _supervise(run: Scene) -> None:
    """Start what has ended by itself, as a supervisor does: nobody starts without a database."""
    for program in (*run.publishers, *run.subscribers):
        if not program.running:
            program.start()


def _take_samples(run: Scene, samples: dict[str, list[ledger.Sample]]) -> None:
    for name, url in run.databases.items():
        try:
            samples[name].append(ledger.sample(url))
        except psycopg.OperationalError:
            continue  # the server is down just now


def _wait_until_imported(run: Scene) -> None:
    for program in (*run.publishers, *run.subscribers):
        eventually(
            lambda program=program: _revived(run, program), timeout=SETTLED_S, what=program.name
        )  # type: ignore[misc]
    ledger.wait_until_sent(run.author)
    journal = open_journal(run.journal_url, client_name="chaos")
    try:
        end = journal.bounds(Topics().package).next - 1
        for name, url in run.databases.items():
            eventually(
                lambda url=url: ledger.sample(url).offset >= end,  # type: ignore[misc]
                timeout=SETTLED_S,
                interval=0.5,
                what=f"{name} at {end}",
            )
    finally:
        journal.close()


def _revived(run: Scene, program: Program) -> bool:
    """Return whether it is ready; one that began without a database may end only now."""
    _supervise(run)
    try:
        return bool(program.ready(timeout=1.0))
    except RuntimeError:
        return False


def _check(
    run: Scene, workload: Workload, samples: dict[str, list[ledger.Sample]]
) -> checks.History:
    journal = open_journal(run.journal_url, client_name="chaos")
    blobs = open_blobs(str(run.programs.folder / "blobs"))
    try:
        found = checks.history(journal, Topics().package, blobs)
        checks.check_journal(found, workload.accepted)
        checks.check_order(found)
        for name, url in run.databases.items():
            checks.check_once(ledger.writes(url), workload.once)
            checks.check_samples(found, [*samples[name], ledger.sample(url)])
        for name in run.databases:
            eventually(
                lambda name=name: _statuses_are_right(journal, found, name),  # type: ignore[misc]
                timeout=SETTLED_S,
                what=f"statuses of {name}",
            )
        return found
    finally:
        journal.close()


def _statuses_are_right(journal: object, found: checks.History, name: str) -> bool:
    records = everything(journal, Topics().status)  # type: ignore[arg-type]
    checks.check_statuses(found, records, name)
    return True
