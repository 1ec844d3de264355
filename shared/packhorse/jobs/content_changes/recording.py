"""Stores events and jobs of changes of content, in the transaction of the change (R34)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg import Connection

from packhorse.content import tree
from packhorse.jobs.content_changes.change import ContentChange, PackageChanges
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.store.adding import NewJob, add_jobs
from packhorse.wire.actions import exports, touched
from packhorse.wire.messages import PackageMessage

_APPLICATION = "packhorse-content"
"""No instance's id: whoever watches gets the event, also where the change was made."""


def record_changes(
    connection: Connection,
    watches: Sequence[ContentWatch],
    changes: Sequence[ContentChange],
) -> None:
    """Store what somebody watches, in the caller's transaction, as the bookkeeper.

    Every instance gets the events. Raises what `record` and `add_jobs` raise.
    """
    roots = sorted({root for watch in watches for root in watch.roots})
    parts = [part for change in changes for part in change.below(roots).in_parts()]
    record(connection, [NewEvent(part.topic, _APPLICATION, part.properties) for part in parts])
    jobs = [
        NewJob(watch.job_topic, {**part.properties, "change": str(part.kind)})
        for watch in watches
        if watch.job_topic is not None
        for change in changes
        for part in change.below(watch.roots).in_parts()
    ]
    add_jobs(connection, "", jobs)


@dataclass(frozen=True, slots=True)
class WatchedImport:
    """Packages of one transaction, which somebody watches."""

    watches: Sequence[ContentWatch] = ()
    changes: Sequence[ContentChange] = field(default=())

    @classmethod
    def before(
        cls,
        connection: Connection,
        watches: Sequence[ContentWatch],
        packages: Sequence[PackageMessage],
        subscriber: str,
    ) -> "WatchedImport":
        """Return what packages will change: called before they are applied."""
        if not watches:
            return cls()
        named = sorted({path for one in packages for path in _written(one)})
        there = tree.present(connection, named)
        changes = PackageChanges(there, {"subscriber": subscriber})
        return cls(watches, [one for package in packages for one in changes.of(package.entry)])

    def record(self, connection: Connection) -> None:
        """Store the events and jobs; called as the bookkeeper, in the same transaction."""
        if self.changes:
            record_changes(connection, self.watches, self.changes)


def _written(package: PackageMessage) -> tuple[str, ...]:
    if not exports(package.entry.action):
        return ()
    shallow, deep = touched(package.entry)
    return (*shallow, *deep)
