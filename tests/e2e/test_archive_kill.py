"""The archive's process group, the JVM in it, is killed again and again."""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive import everything_in, fill
from tests.harness.archive_site import places
from tests.harness.journals import fresh_name
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.spark import spark_environment
from tests.harness.waiting import eventually

# The gate breaks an archive off at its commit points: `tests/spark/archive/test_archive_kills.py`.
pytestmark = [pytest.mark.spark, pytest.mark.depth, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("TEST_ARCHIVE_KILLS", "1"))
NUMBERS = range(25)
"""Of which each makes six records."""
BATCH = 100
START_S = 600.0


@pytest.fixture(params=["sql", pytest.param("kafka", marks=pytest.mark.kafka)])
def journal_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        broker: RunningKafka = request.getfixturevalue("kafka")
        yield broker.url
    else:
        databases: Databases = request.getfixturevalue("databases")
        yield databases.new()


def commits(location: Location) -> int:
    """Return how often bronze and packages were committed to."""
    names = (tables.BRONZE, tables.PACKAGES)
    return sum(
        len(list(Path(location.delta_uri(name), "_delta_log").glob("*.json"))) for name in names
    )


def test_killed_with_its_jvm_the_archive_is_whole(journal_url: str, tmp_path: Path) -> None:
    prefix = fresh_name()
    topics = Topics.named(prefix, {})
    location = Location.parse(str(tmp_path / "tables"))
    environment = {
        **spark_environment(),
        "PACKHORSE_JOURNAL_URL": journal_url,
        "PACKHORSE_BLOBS_URL": str(tmp_path / "blobs"),
        "PACKHORSE_TABLES_URL": location.base,
        "PACKHORSE_TOPIC_PREFIX": prefix,
    }
    command = (sys.executable, "-m", "packhorse_services.pipeline", "archive")
    small = ("--max-offsets", str(BATCH))
    run = Process("archive", (*command, *small), environment, tmp_path)
    chance = random.Random(5)
    journal = open_journal(journal_url, client_name="tests")
    try:
        fill(journal, topics, NUMBERS)
        for _ in range(KILLS):
            kill_after_a_commit(run, location, chance)
            fill(journal, topics, NUMBERS)
        run.start()
        assert run.wait(START_S) == 0, run.said()
        expected = everything_in(journal, topics)
    finally:
        journal.close()
    found = places(location, tables.BRONZE)
    assert len(found) == len(set(found)), "a record is in the archive twice"
    assert set(found) == set(expected)
    packages = places(location, tables.PACKAGES)
    assert sorted(packages) == [
        place[1:] for place in sorted(expected) if place[0] == topics.package
    ]


def kill_after_a_commit(run: Process, location: Location, chance: random.Random) -> None:
    """Kill the run right behind one of its next commits; it may also have ended by then."""
    before = commits(location)
    run.start()
    wanted = before + chance.randrange(1, 4)
    eventually(
        lambda: commits(location) >= wanted or not run.running,
        timeout=START_S,
        what=f"a commit\n{run.said()}",
    )
    run.kill()
