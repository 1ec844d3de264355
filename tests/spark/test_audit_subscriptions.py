"""What the audit says of subscriptions at different offsets, and of who joined by a snapshot."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.db.connect import connect
from packhorse.packages.apply import apply
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.wire.package_codec import decode_package
from packhorse_services.pipeline.audit.archive_end import ArchiveEnd
from packhorse_services.pipeline.audit.expected import Expectations
from packhorse_services.pipeline.audit.outcome import Audited
from packhorse_services.pipeline.audit.task import Audit
from packhorse_services.pipeline.snapshot.task import SnapshotRequest, make_snapshot
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import page
from tests.harness.history import JOURNAL, History, archive, statuses
from tests.harness.postgres import Databases

pytestmark = pytest.mark.spark

Subscriptions = dict[str, tuple[int, int]]
"""Of each publisher agent: the offset, and where the subscription began."""


@dataclass
class Site:
    """An archive of two publisher agents, and a subscriber."""

    spark: SparkSession
    location: Location
    url: str
    history: History
    archived: int = 0

    def write(self, agent: str, path: str, version: int = 1) -> int:
        """Let an agent distribute a page; returns the offset."""
        self.history.agent = agent
        return self.history.add(page(path, version))

    def imported(self, offsets: list[int], subscriptions: Subscriptions) -> None:
        """Archive what is new, import packages in this order, and stand at these offsets."""
        if new := self.history.records[self.archived :]:
            archive(self.location, new)
        self.archived = len(self.history.records)
        records = {record.offset: record for record in self.history.records}
        with closing(connect(self.url, "tests")) as connection:
            for offset in offsets:
                package = decode_package(records[offset].headers, records[offset].value)
                apply(connection, [package], self.history.bodies)
            for agent, (offset, started) in subscriptions.items():
                connection.execute(
                    "INSERT INTO bookkeeping.position (publisher_agent, journal_id, epoch, "
                    "log_offset, package_id, started_offset) VALUES (%s, %s, 1, %s, '', %s)",
                    (agent, JOURNAL, offset, started),
                )
            connection.commit()

    def edit(self, statement: str) -> None:
        with closing(connect(self.url, "tests")) as connection:
            connection.execute(statement)
            connection.commit()

    def snapshot(self, request: SnapshotRequest) -> ContentSnapshot:
        blobs_url = str(self.history.bodies.root)
        return make_snapshot(self.spark, self.location, blobs_url, request).snapshot

    def audit(self, run: str, *, since_start: bool = False) -> Audited:
        end, blobs = ArchiveEnd(self.spark, self.location), str(self.history.bodies.root)
        expectations = Expectations(end, blobs, since_start=since_start)
        with closing(expectations):
            return Audit(self.spark, self.location, run, expectations).one("sub", self.url)


@pytest.fixture
def site(spark: SparkSession, databases: Databases, tmp_path: Path) -> Iterator[Site]:
    history = History(FilesystemBlobs(tmp_path / "blobs"))
    yield Site(spark, Location.parse(str(tmp_path / "tables")), databases.new("sub"), history)
    history.bodies.close()


def reported(audited: Audited) -> set[tuple[str, str, int | None]]:
    assert audited.problem == ""
    return {(one.kind, one.path, one.offset) for one in audited.findings}


def test_subscriptions_at_different_offsets_are_each_held_to_their_own(site: Site) -> None:
    for path in ("/a", "/b"):
        site.write("main", f"/m{path}")
        site.write("other", f"/o{path}")
    site.imported([0, 2, 1], {"main": (2, -1), "other": (1, -1)})
    audited = site.audit("before")
    assert reported(audited) == set()
    assert any("different offsets" in note for note in audited.notes)
    site.edit("DELETE FROM content.node WHERE path IN ('/m/b', '/o/a')")
    site.edit("INSERT INTO content.node VALUES ('/o/b', 'page', '{}', '{}')")
    found = reported(site.audit("after"))
    assert found == {("missing", "/m/b", 2), ("missing", "/o/a", 1), ("extra", "/o/b", None)}


def test_who_joined_by_a_snapshot_is_audited_like_the_others(site: Site) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([0, 1, 2, 3], {"main": (3, 1)})
    audited = site.audit("before")
    assert reported(audited) == set()
    assert any("began behind offset 1" in note for note in audited.notes)
    assert any("the blob store has no snapshot" in note for note in audited.notes)
    site.edit("DELETE FROM content.node WHERE path IN ('/p0', '/p3')")
    assert reported(site.audit("after")) == {("missing", "/p0", 0), ("missing", "/p3", 3)}


def test_who_began_with_the_latest_is_audited_since_its_start(site: Site) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([2, 3], {"main": (3, 1)})
    assert reported(site.audit("whole")) == {("missing", "/p0", 0), ("missing", "/p1", 1)}
    assert reported(site.audit("since", since_start=True)) == set()
    site.edit("DELETE FROM content.node WHERE path = '/p2'")
    assert reported(site.audit("broken", since_start=True)) == {("missing", "/p2", 2)}


@pytest.mark.parametrize(
    "request_of",
    [
        SnapshotRequest(2, leave_out=(1,)),
        pytest.param(SnapshotRequest(2, subscriber="golden"), marks=pytest.mark.depth),
    ],
    ids=["leave-out", "golden"],
)
def test_r8_who_joined_by_a_snapshot_is_held_to_what_that_left_out(
    site: Site, request_of: SnapshotRequest
) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([0, 2, 3], {"main": (3, 2)})
    statuses(site.location, ("golden", 1, "REMOVED"))
    made = site.snapshot(request_of)
    audited = site.audit("joined")
    assert reported(audited) == set()
    assert any(made.id in note for note in audited.notes)
    site.edit("DELETE FROM content.node WHERE path IN ('/p0', '/p3')")
    assert reported(site.audit("broken")) == {("missing", "/p0", 2), ("missing", "/p3", 3)}


@pytest.mark.depth
def test_which_snapshot_was_loaded_is_not_certain_and_that_is_noted(site: Site) -> None:
    for number in range(3):
        site.write("main", f"/p{number}")
    site.imported([0, 2], {"main": (2, 2)})
    whole, other = site.snapshot(SnapshotRequest()), site.snapshot(SnapshotRequest(leave_out=(1,)))
    audited = site.audit("run")
    first, second = sorted((whole, other), key=lambda one: one.id, reverse=True)  # as chosen
    assert reported(audited) == ({("missing", "/p1", 2)} if first == whole else set())
    assert any(f"held to {first.id}" in note for note in audited.notes)
    assert any(f"may have loaded {second.id}" in note for note in audited.notes)
