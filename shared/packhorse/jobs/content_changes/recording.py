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
from packhorse.jobs.store.adding import add_jobs
from packhorse.jobs.store.given import NewJob
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
    of_all = [root for watch in watches if not watch.types for root in watch.roots]
    typed = _of_types(connection, [watch for watch in watches if watch.types], changes)
    events = _events(_below(changes, of_all))
    jobs = list[NewJob]()
    for watch in watches:
        if watch.types:
            events += _events(typed[watch.name])
        if watch.job_topic is not None:
            seen = typed[watch.name] if watch.types else _below(changes, watch.roots)
            jobs += _jobs(watch.job_topic, seen)
    record(connection, events)
    add_jobs(connection, "", jobs)


def _events(changes: Iterable[ContentChange]) -> list[NewEvent]:
    return [NewEvent(part.topic, _APPLICATION, part.properties) for part in _parts(changes)]


def _jobs(topic: str, changes: Iterable[ContentChange]) -> list[NewJob]:
    return [
        NewJob(topic, {**part.properties, "change": str(part.kind)}) for part in _parts(changes)
    ]


def _of_types(
    connection: Connection, watches: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> dict[str, list[ContentChange]]:
    """Return what each watch with types gets: asked once for all nodes, once a watch for subtrees.

    Only what was added or invalidated is asked about below its top: a replaced subtree may have
    lost a node of the type, and is for all, as what was removed is.
    """
    seen = {watch.name: list(_below(changes, watch.roots)) for watch in watches}
    paths = {path for row in seen.values() for change in row for path in change.paths}
    tops = {name: sorted(set(_asked_below(row))) for name, row in seen.items()}
    now, found = dict[str, str](), dict[str, set[str]]()
    if paths or any(tops.values()):
        act_as(connection, IMPORTER)
        now = tree.present(connection, sorted(paths))
        found = {
            one.name: tree.with_types(connection, tops[one.name], one.types) for one in watches
        }
        act_as(connection, BOOKKEEPER)
    result = dict[str, list[ContentChange]]()
    for watch in watches:
        with_type = found.get(watch.name, ())
        taken = [change.of_types(watch.types, now, with_type) for change in seen[watch.name]]
        result[watch.name] = [
            replace(one, source={**one.source, "watch": watch.name}) for one in taken
        ]
    return result


def record_watched(
    connection: Connection, watches: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> None:
    """Do the same, if somebody watches; the last thing that the importer's transaction does."""
    if watches:
        act_as(connection, BOOKKEEPER)
        record_changes(connection, watches, changes)


def _asked_below(changes: Iterable[ContentChange]) -> Iterator[str]:
    for change in changes:
        if change.kind in (ChangeKind.ADDED, ChangeKind.INVALIDATED):
            yield from change.deep_paths


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
