"""Stores events and jobs of changes of content, in the transaction of the change (R34)."""

from collections.abc import Iterable, Iterator, Sequence

from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import InvalidPath, ancestors_of, check_path
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import ContentChange, PackageChanges, WatchedRoots
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.store.adding import NewJob, add_jobs
from packhorse.wire.actions import exports
from packhorse.wire.messages import PackageMessage

_APPLICATION = "packhorse-content"
"""No instance's id: whoever watches gets the event, also where the change was made."""


def record_changes(
    connection: Connection, watches: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> None:
    """Store what somebody watches, in the caller's transaction, as the bookkeeper.

    Every instance gets the events. Raises what `record` and `add_jobs` raise.
    """
    all_roots = WatchedRoots(root for watch in watches for root in watch.roots)
    parts = _parts(changes, all_roots)
    record(connection, [NewEvent(one.topic, _APPLICATION, one.properties) for one in parts])
    jobs = [
        NewJob(watch.job_topic, {**part.properties, "change": str(part.kind)})
        for watch in watches
        if watch.job_topic is not None
        for part in _parts(changes, WatchedRoots(watch.roots))
    ]
    add_jobs(connection, "", jobs)


def record_watched(
    connection: Connection, watches: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> None:
    """Do the same, if somebody watches; the last thing that the importer's transaction does."""
    if watches:
        act_as(connection, BOOKKEEPER)
        record_changes(connection, watches, changes)


def _parts(changes: Iterable[ContentChange], roots: WatchedRoots) -> Iterator[ContentChange]:
    for change in changes:
        yield from change.below(roots).in_parts()


def changes_of(
    connection: Connection, packages: Sequence[PackageMessage], subscriber: str
) -> list[ContentChange]:
    """Return what packages will change: called before they are applied, for a row of them."""
    named = {path for package in packages for path in _written(package)}
    above = {one for path in named for one in ancestors_of(path)}
    there = tree.present(connection, sorted(named | above))
    changes = PackageChanges(there, {"subscriber": subscriber})
    return [change for package in packages for change in changes.of(package.entry)]


def _written(package: PackageMessage) -> Iterator[str]:
    """Yield the paths that a package writes; a path that is none makes its import fail."""
    if not exports(package.entry.action):
        return
    for path in (*package.entry.paths, *package.entry.deep_paths):
        try:
            yield check_path(path)
        except InvalidPath:
            continue
