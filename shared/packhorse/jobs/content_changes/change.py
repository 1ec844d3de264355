"""What a write or a package does to content, as events say it. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from packhorse.content.node import is_within
from packhorse.wire.actions import exports, notifies, touched
from packhorse.wire.messages import PackageEntry

MOST_PATHS = 100
"""Paths of one event; more come as several events, so that none is too large to store."""
_MOST_BYTES = 48 * 1024


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
    and for a package `package_id` and `publisher_agent`.
    """

    kind: ChangeKind
    paths: Sequence[str] = ()
    deep_paths: Sequence[str] = ()
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The event's topic."""
        return f"packhorse/content/{self.kind}"

    @property
    def properties(self) -> Mapping[str, Any]:
        """The event's properties."""
        return {**self.source, "paths": list(self.paths), "deep_paths": list(self.deep_paths)}

    def below(self, roots: Sequence[str]) -> "ContentChange":
        """Return what of the change concerns nodes below one of `roots`."""
        return replace(
            self,
            paths=[path for path in self.paths if _is_below(path, roots)],
            deep_paths=[
                path
                for path in self.deep_paths
                if _is_below(path, roots) or any(is_within(root, path) for root in roots)
            ],
        )

    def in_parts(self) -> Iterator["ContentChange"]:
        """Yield changes that together are this one, each small enough for an event."""
        for part in _parts(self.paths):
            yield replace(self, paths=part, deep_paths=())
        for part in _parts(self.deep_paths):
            yield replace(self, paths=(), deep_paths=part)


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(is_within(path, root) for root in roots)


def _parts(paths: Sequence[str]) -> Iterator[tuple[str, ...]]:
    part: list[str] = []
    size = 0
    for path in paths:
        length = len(path.encode()) * 2 + 4  # JSON doubles a quote or a backslash
        if part and (len(part) == MOST_PATHS or size + length > _MOST_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(path)
        size += length
    if part:
        yield tuple(part)


class PackageChanges:
    """Turns packages that are imported in this order into changes.

    `present` are the nodes that are there before the first one, of those that the packages name.
    """

    def __init__(self, present: Collection[str], source: Mapping[str, Any]) -> None:
        self._present, self._source = set(present), source

    def of(self, entry: PackageEntry) -> Iterator[ContentChange]:
        """Yield what a package does; call it once for each, in their order."""
        source = {
            **self._source,
            "package_id": entry.package_id,
            "publisher_agent": entry.publisher_agent,
            "user": entry.user,
        }
        if notifies(entry.action):
            yield ContentChange(
                ChangeKind.INVALIDATED, (), (*entry.paths, *entry.deep_paths), source
            )
        shallow, deep = touched(entry)
        if not exports(entry.action):
            self._present -= {path for path in self._present if _is_below(path, deep)}
            if deep:
                yield ContentChange(ChangeKind.REMOVED, (), deep, source)
            return
        yield from self._written(shallow, deep, source)

    def _written(
        self, shallow: Sequence[str], deep: Sequence[str], source: Mapping[str, Any]
    ) -> Iterator[ContentChange]:
        known = self._present
        for kind, is_known in ((ChangeKind.ADDED, False), (ChangeKind.CHANGED, True)):
            paths = [path for path in shallow if (path in known) is is_known]
            deeps = [path for path in deep if (path in known) is is_known]
            if paths or deeps:
                yield ContentChange(kind, paths, deeps, source)
        known.update(shallow, deep)
