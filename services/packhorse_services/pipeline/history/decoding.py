"""One archived package record to what it does to the tree, with the product's own decoders.

Nothing here knows Spark. What is read is untrusted (R30): `unpack` bounds it, and the nodes of a
body are passed on one by one.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.content.node import ROOT, Binary, Node, is_within
from packhorse.content.rows import NO_BINARIES, format_binaries
from packhorse.errors import Permanent
from packhorse.packages.effects import SubtreeRemoval, effects
from packhorse.packages.limits import PackageRefused
from packhorse.wire.messages import PackageEntry, PackageMessage
from packhorse.wire.package_codec import decode_entry, decode_package

WRITE = "write"
CLEAR = "clear"
UNREADABLE = "unreadable"
"""Of a package whose changes are not known; `path` says why."""

_REASON_CHARACTERS = 300


class PathEvent(NamedTuple):
    """What a package does at one path; the texts of a clear are None."""

    offset: int
    kind: str
    path: str
    range_from: str = ""
    range_to: str = ""
    type: str | None = None
    properties: str | None = None
    binaries: str | None = None
    package_id: str = ""
    position: int = 0

    @property
    def size(self) -> int:
        """Characters that it holds, about."""
        return len(self.path) + len(self.properties or "") + len(self.binaries or "")


def events_of(
    offset: int,
    headers: Mapping[str, bytes],
    value: bytes,
    bodies: BlobStore,
    within: str = ROOT,
) -> Iterator[PathEvent]:
    """Yield what a package clears and writes, its writes in their order, in constant memory.

    Only what can change something `within` that path: a package whose header names other paths
    alone is passed over, one whose header names none is not. When a package turns out to be
    unreadable, an event that says so comes last; what came before it counts for nothing then.
    Raises `BlobStoreUnavailable`.
    """
    package_id = ""
    try:
        entry = decode_entry(headers)
        package_id = entry.package_id
        named = (*entry.paths, *entry.deep_paths)
        if not named or any(_overlap(path, within) for path in named):
            for event in _events(offset, _decoded(entry, headers, value), bodies):
                if is_within(event.path, within) or (
                    event.kind == CLEAR and is_within(within, event.path)
                ):
                    yield event
    except (Permanent, BlobMissing) as error:
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
        yield PathEvent(offset, UNREADABLE, reason, package_id=package_id)


def binaries_text(binaries: tuple[Binary, ...]) -> str:
    """Return the JSON of a node's binaries just as Postgres writes it from `jsonb`."""
    if not binaries:
        return NO_BINARIES
    found = json.loads(format_binaries(binaries))
    names = sorted(found, key=lambda name: (len(name.encode()), name.encode()))
    return json.dumps({name: found[name] for name in names}, ensure_ascii=False)


def _overlap(path: str, within: str) -> bool:
    return is_within(path, within) or is_within(within, path)


def _decoded(entry: PackageEntry, headers: Mapping[str, bytes], value: bytes) -> PackageMessage:
    package = decode_package(headers, value)
    if package.entry != entry:
        raise PackageRefused("the record's headers name another package than its body")
    return package


def _events(offset: int, package: PackageMessage, bodies: BlobStore) -> Iterator[PathEvent]:
    entry = package.entry
    position = itertools.count()
    for effect in effects(package, bodies):
        if isinstance(effect, Node):
            yield _write(offset, effect, entry.package_id, next(position))
        elif isinstance(effect, SubtreeRemoval):
            yield PathEvent(offset, CLEAR, effect.path, package_id=entry.package_id)
        else:
            part = (effect.part.top, entry.range_from, entry.range_to)
            yield PathEvent(offset, CLEAR, *part, package_id=entry.package_id)
            for node in effect.nodes:
                yield _write(offset, node, entry.package_id, next(position))


def _write(offset: int, node: Node, package_id: str, position: int) -> PathEvent:
    return PathEvent(
        offset,
        WRITE,
        node.path,
        type=node.type,
        properties=node.properties,
        binaries=binaries_text(node.binaries),
        package_id=package_id,
        position=position,
    )
