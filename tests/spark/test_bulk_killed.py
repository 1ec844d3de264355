"""`packhorse-pipeline bulk`: killed and run again, every package goes out once (R5)."""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyspark.sql import SparkSession

from packhorse.messaging.numbered import number_of
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import PackageEntry
from packhorse.wire.package_codec import decode_entry
from packhorse_services.pipeline.bulk.prepare import prepare
from packhorse_services.pipeline.bulk.state import Export
from packhorse_services.pipeline.storage.location import Location
from tests.harness.bulk import TOP, odd_nodes, written
from tests.harness.command_line import packhorse_program
from tests.harness.journals import everything
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.site import Site, site
from tests.harness.spark import spark_environment
from tests.harness.waiting import eventually

pytestmark = pytest.mark.spark

ID = "huge"
PART_NODES = 40
SERVICE = "packhorse_services.pipeline"
SENT = f"{SERVICE}.bulk.publisher_api:PublisherClient._sent"
"""Before the 1st call nothing can be out, however late the test's own kill comes. After the 4th it
has registered and sent three parts; of the last one it never learns that it is out."""


class BulkSite:
    """A site whose author has a large subtree, and the bulk program as its operator runs it."""

    def __init__(self, built: Site, journal_url: str) -> None:
        self.site, self.journal_url = built, journal_url
        folder = built.programs.folder
        self.blobs = folder / "blobs"
        self.environment = {
            **spark_environment(),
            "PACKHORSE_DATABASE_URL": built.author_url,
            "PACKHORSE_BLOBS_URL": str(self.blobs),
            "PACKHORSE_TABLES_URL": str(folder / "tables"),
            "PACKHORSE_PUBLISHER_URL": built.publisher.url,
            "PACKHORSE_PUBLISHER_TOKEN": built.programs.token,
        }
        command = ("bulk", "--deep", TOP, "--id", ID, "--part-nodes", str(PART_NODES))
        deadly = (sys.executable, "-m", "tests.harness.killed_program")
        first = (*deadly, f"{SENT}@before1", SERVICE, *command)
        second = (*deadly, f"{SENT}@after4", SERVICE, *command)
        self.program = Process("bulk", first, self.environment, folder)
        self.killed = Process("killed", second, self.environment, folder)

    def resumed(self) -> tuple[str, ...]:
        """Return the arguments of `packhorse` that go on with it."""
        connection = ("--server", self.site.publisher.url, "--token", self.site.programs.token)
        return (*connection, "distribute", "--deep", TOP, "--bulk", "--id", ID)

    def prepare(self, spark: SparkSession) -> None:
        """Do the first phase here, which the program then finds done."""
        location = Location.parse(self.environment["PACKHORSE_TABLES_URL"])
        export = Export(
            ID, TOP, self.site.author_url, str(self.blobs), PART_NODES, part_bytes=64 * 1024**2
        )
        prepare(lambda: spark, location, export, lambda: None)

    def stored(self) -> int:
        return len(list(self.blobs.glob("packages/*/*")))

    def published(self) -> list[tuple[int, PackageEntry]]:
        """Return sequence and entry of each package of the bulk producer, as the journal has it."""
        topic = f"{self.site.programs.all[0].environment['PACKHORSE_TOPIC_PREFIX']}_package"
        found = []
        with closing(open_journal(self.journal_url, client_name="tests")) as journal:
            for record in everything(journal, topic):
                number = number_of(record.headers)
                if number and f"/bulk-{ID}/" in number.producer:
                    found.append((number.sequence, decode_entry(record.headers)))
        return found


@pytest.fixture
def bulk(databases: Databases) -> Iterator[BulkSite]:
    journal_url = databases.new("journal")
    with site(databases, journal_url) as built:
        built.subscriber("sub1")
        built.start()
        written(built.author_url, odd_nodes())
        yield BulkSite(built, journal_url)


@pytest.mark.parametrize(
    # `test_bulk_export.py` ends the first phase in the middle, and begins it again.
    "phases",
    ["second", pytest.param("both", marks=pytest.mark.depth)],
)
def test_r5_r6_a_bulk_distribution_that_is_killed_goes_out_once(
    bulk: BulkSite,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    phases: str,
) -> None:
    for name, text in bulk.environment.items():
        if "PUBLISHER" not in name:
            monkeypatch.setenv(name, text)
    if phases == "both":
        program = bulk.program
        program.start()
        eventually(lambda: bulk.stored() >= 3, timeout=600, what=program.said())
        program.kill()
        assert bulk.published() == [], "the first phase appends nothing"
    else:
        bulk.prepare(request.getfixturevalue("spark"))

    bulk.killed.start()
    assert bulk.killed.wait(600) == -signal.SIGKILL, bulk.killed.said()
    before = bulk.published()
    last = f"{TOP}/odd/zzz"
    bulk.site.put(last, properties={"written": "since"})
    bulk.site.distribute(last)  # newer than the last part, which is stale now

    said = packhorse_program(*bulk.resumed(), data=bulk.site.programs.folder / "none").stderr
    reported = re.search(r"(\d+) parts sent, (\d+) had been sent before, 1 exports again", said)
    assert reported is not None, said
    assert int(reported[2]) >= len(before) > 0
    _check_published(bulk, parts=int(reported[1]) + int(reported[2]))
    eventually(lambda: len(set(bulk.site.hashes(TOP).values())) == 1, timeout=300)
    found = bulk.site.at("sub1", last)
    assert found is not None
    assert found["properties"] == {"written": "since"}


def _check_published(bulk: BulkSite, parts: int) -> None:
    """Every part is in the journal once, in order, and together they are the subtree."""
    published = bulk.published()
    assert [sequence for sequence, _ in published] == list(range(parts))
    entries = [entry for _, entry in published]
    assert len({entry.package_id for entry in entries}) == parts > 10
    assert [entry.range_from for entry in entries[1:]] == [one.range_to for one in entries[:-1]]
    assert (entries[0].range_from, entries[-1].range_to) == ("", "")
