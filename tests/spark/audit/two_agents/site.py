"""An archive of two publisher agents, and a subscriber that is audited."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from packhorse.db.connect import connect
from packhorse.packages.apply import apply
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.wire.package_codec import decode_package
from packhorse_services.pipeline.audit.archived import ArchiveEnd
from packhorse_services.pipeline.audit.expected import Expectations
from packhorse_services.pipeline.audit.outcome import Audited
from packhorse_services.pipeline.audit.task import Audit
from packhorse_services.pipeline.snapshot.task import SnapshotRequest, make_snapshot
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS, page
from tests.harness.history import JOURNAL, History, archive
from tests.harness.postgres import Databases

Subscriptions = dict[str, tuple[int, int]]
"""Of each publisher agent: the offset, and where the subscription began."""


@dataclass
class Site:
    """An archive of two publisher agents, and a subscriber."""

    spark: SparkSession
    location: Location
    databases: Databases
    url: str
    history: History
    archived: int = 0
    states: dict[str, str] = field(default_factory=dict)
    """Databases to be audited: copies of the subscriber's, each as it was at some moment."""

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

    def loaded(self, snapshot: ContentSnapshot) -> None:
        """Let the subscriber's record say that it has joined by this snapshot."""
        with closing(connect(self.url, "tests")) as connection:
            connection.execute(
                "INSERT INTO bookkeeping.joined_snapshot "
                "(snapshot_id, log_offset, journal_id, publisher_agents, subscriber, left_out) "
                "VALUES (%s, %s, %s, %s, %s, %s)",
                (
                    *(snapshot.id, snapshot.offset, snapshot.journal_id),
                    *(list(snapshot.publisher_agents), snapshot.subscriber, snapshot.left_out),
                ),
            )
            connection.commit()

    def edit(self, statement: str) -> None:
        with closing(connect(self.url, "tests")) as connection:
            connection.execute(statement)
            connection.commit()

    def snapshot(self, request: SnapshotRequest) -> ContentSnapshot:
        blobs_url = str(self.history.bodies.root)
        return make_snapshot(self.spark, self.location, TOPICS.package, blobs_url, request).snapshot

    def keep(self, name: str) -> None:
        """Keep the subscriber as it is now, to be audited under this name."""
        self.states[name] = self.databases.copy(self.url)

    def audit(self, run: str) -> Audited:
        """Audit the subscriber as it is now."""
        return self._audited(run, {"sub": self.url})["sub"]

    def audit_kept(self, run: str, *names: str, since_start: bool = False) -> Mapping[str, Audited]:
        """Audit what was kept under these names, or all of it, in one run."""
        urls = {name: self.states[name] for name in names or self.states}
        return self._audited(run, urls, since_start=since_start)

    def _audited(
        self, run: str, urls: Mapping[str, str], *, since_start: bool = False
    ) -> Mapping[str, Audited]:
        end = ArchiveEnd(self.location, TOPICS.package)
        blobs = str(self.history.bodies.root)
        expectations = Expectations(self.spark, end, blobs, since_start=since_start)
        with closing(expectations):
            found = Audit(self.spark, self.location, run, expectations).all(urls)
        return {one.subscriber: one for one in found}


def reported(audited: Audited) -> set[tuple[str, str, int | None]]:
    assert audited.problem == ""
    return {(one.kind, one.path, one.offset) for one in audited.findings}
