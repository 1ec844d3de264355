"""Stores events and jobs of changes of content, in the transaction of the change (R34)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import InvalidPath, ancestors_of, check_path
from packhorse.db.metadata import BOOKKEEPER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import (
    ChangeKind,
    ContentChange,
    PackageChanges,
    WatchedRoots,
)
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
    events, jobs = list[NewEvent](), list[NewJob]()
    of_all = [root for watch in watches if not watch.types for root in watch.roots]
    for part in _parts(_below(changes, of_all)):
        events.append(NewEvent(part.topic, _APPLICATION, part.properties))
    for watch in watches:
        seen = _below(changes, watch.roots)
        for part in _parts(_of_types(connection, watch, seen) if watch.types else seen):
            if watch.types:
                events.append(NewEvent(part.topic, _APPLICATION, part.properties))
            if watch.job_topic is not None:
                properties = {**part.properties, "change": str(part.kind)}
                jobs.append(NewJob(watch.job_topic, properties))
    record(connection, events)
    add_jobs(connection, "", jobs)


def _of_types(
    connection: Connection, watch: ContentWatch, changes: Iterable[ContentChange]
) -> Iterator[ContentChange]:
    """Yield what a watch with types gets: what is gone has no type any more, and is for all."""
    for change in changes:
        seen = replace(change, source={**change.source, "watch": watch.name})
        if change.kind is not ChangeKind.REMOVED:
            act_as(connection, IMPORTER)
            places = tree.of_types(connection, seen.paths, seen.deep_paths, watch.types)
            act_as(connection, BOOKKEEPER)
            seen = seen.at(places)
        yield seen


def record_watched(
    connection: Connection, watches: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> None:
    """Do the same, if somebody watches; the last thing that the importer's transaction does."""
    if watches:
        act_as(connection, BOOKKEEPER)
        record_changes(connection, watches, changes)


def _below(changes: Iterable[ContentChange], roots: Iterable[str]) -> Iterator[ContentChange]:
    held = WatchedRoots(roots)
    below = (change.below(held) for change in changes)
    return (change for change in below if change.paths or change.deep_paths)


def _parts(changes: Iterable[ContentChange]) -> Iterator[ContentChange]:
    return (part for change in changes for part in change.in_parts())


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
