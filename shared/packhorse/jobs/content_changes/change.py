"""What a write or a package does to content, as events say it. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from packhorse.content.batches import batches
from packhorse.content.node import ROOT, ancestors_of
from packhorse.wire.actions import exports, notifies, touched
from packhorse.wire.messages import PackageEntry, PackageMessage

MOST_PATHS = 100
"""Paths of one event; more come as several events, so that none is too large to store."""
_MOST_BYTES = 48 * 1024
_LONGEST_TEXT = 255


class ChangeKind(StrEnum):
    """What has happened; the last segment of the event's topic."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    INVALIDATED = "invalidated"


TOPICS = "packhorse/content/*"
"""The pattern of all of these events."""


@dataclass(frozen=True, slots=True)
class ContentChange:
    """One kind of change of some nodes.

    `paths` are single nodes, `deep_paths` nodes with all below them. `source` says who: `user`,
    and for a package `package_id` and `publisher_agent`. `before` has the types that changed nodes
    of `paths` had, where it is known.
    """

    kind: ChangeKind
    paths: Sequence[str] = ()
    deep_paths: Sequence[str] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The event's topic."""
        return f"packhorse/content/{self.kind}"

    @property
    def properties(self) -> Mapping[str, Any]:
        """The event's properties."""
        return {**self.source, "paths": list(self.paths), "deep_paths": list(self.deep_paths)}

    def below(self, roots: "WatchedRoots") -> "ContentChange":
        """Return what of the change concerns nodes at or below one of the roots."""
        return replace(
            self,
            paths=[path for path in self.paths if roots.hold(path)],
            deep_paths=[path for path in self.deep_paths if roots.meet(path)],
        )

    def of_types(
        self, types: Collection[str], now: Mapping[str, str], tops: Collection[str]
    ) -> "ContentChange":
        """Return what of the change concerns nodes that have one of the types, or may have had it.

        `now` are the types of the nodes that are there after it, `tops` the subtrees with such a
        node. What is gone has no type any more, and a subtree that was replaced may have lost one.
        """
        if self.kind is ChangeKind.REMOVED:
            return self
        changed = self.kind is ChangeKind.CHANGED

        def may_have_had_it(path: str) -> bool:
            return changed and (path not in self.before or self.before[path] in types)

        return replace(
            self,
            paths=[path for path in self.paths if now.get(path) in types or may_have_had_it(path)],
            deep_paths=[path for path in self.deep_paths if changed or path in tops],
        )

    def in_parts(self) -> Iterator["ContentChange"]:
        """Yield changes that together are this one, each small enough for an event."""
        for part in _in_events(self.paths):
            yield replace(self, paths=part, deep_paths=())
        for part in _in_events(self.deep_paths):
            yield replace(self, paths=(), deep_paths=part)


def _in_events(paths: Sequence[str]) -> Iterator[list[str]]:
    return batches(paths, _length_in_json, most=MOST_PATHS, most_size=_MOST_BYTES)


def _length_in_json(path: str) -> int:
    return len(path.encode()) * 2 + 4  # it doubles a quote or a backslash


class WatchedRoots:
    """Paths with all below them; a question costs what the path is deep, however many they are."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = frozenset(roots)
        self._above = frozenset(one for root in self._roots for one in (ROOT, *ancestors_of(root)))

    def hold(self, path: str) -> bool:
        """Return whether a node is one of the roots, or below one."""
        return not self._roots.isdisjoint((path, ROOT, *ancestors_of(path)))

    def meet(self, path: str) -> bool:
        """Return whether a node, with all below it, has a part in what the roots hold."""
        return path in self._above or self.hold(path)


def stored_text(text: str) -> str:
    """Return what an event can say of a text that somebody else has chosen: never too much."""
    return text[:_LONGEST_TEXT].replace("\0", "\ufffd")


def of_writing(
    present: Mapping[str, str], paths: Sequence[str], deep: Sequence[str], source: Mapping[str, Any]
) -> Iterator[ContentChange]:
    """Yield what writing these nodes and subtrees does where `present`, with types, are there."""
    for kind, is_known in ((ChangeKind.ADDED, False), (ChangeKind.CHANGED, True)):
        change = ContentChange(
            kind,
            [path for path in paths if (path in present) is is_known],
            [path for path in deep if (path in present) is is_known],
            source,
            {path: present[path] for path in paths if is_known and path in present},
        )
        if change.paths or change.deep_paths:
            yield change


class PackageChanges:
    """Turns packages that are imported in this order into changes.

    `present` are the nodes that are there before the first one, with their types, of those that
    the packages name and those above them. What a subtree brings or takes is not known by its
    package, so one with a subtree is the last of its row: see `rows_of`.
    """

    def __init__(self, present: Mapping[str, str], source: Mapping[str, Any]) -> None:
        self._present, self._source = dict(present), source

    def of(self, entry: PackageEntry) -> Iterator[ContentChange]:
        """Yield what a package does; call it once for each, in their order."""
        source = {
            **self._source,
            "package_id": stored_text(entry.package_id),
            "publisher_agent": stored_text(entry.publisher_agent),
            "user": stored_text(entry.user),
        }
        if notifies(entry.action):
            yield ContentChange(
                ChangeKind.INVALIDATED, (), (*entry.paths, *entry.deep_paths), source
            )
        shallow, deep = touched(entry)
        if exports(entry.action):
            yield from of_writing(self._present, shallow, deep, source)
            for path in (*shallow, *deep):
                for one in (path, *ancestors_of(path)):
                    self._present.setdefault(one, "")  # nobody has seen a node of the same row
        elif deep:
            removed = WatchedRoots(deep)
            left = {path: one for path, one in self._present.items() if not removed.hold(path)}
            self._present = left
            yield ContentChange(ChangeKind.REMOVED, (), deep, source)


def rows_of(packages: Sequence[PackageMessage]) -> Iterator[Sequence[PackageMessage]]:
    """Yield the packages in rows, each of which ends with one that writes a subtree."""
    first = 0
    for number, package in enumerate(packages):
        if exports(package.entry.action) and package.entry.deep_paths:
            yield packages[first : number + 1]
            first = number + 1
    if first < len(packages):
        yield packages[first:]
