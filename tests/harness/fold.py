"""What a subscriber must hold, computed from the journal alone: the model that the suites trust.

It shares the decoders with the product and nothing of the import.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node
from packhorse.messaging.api import Record
from packhorse.packages.body import unpack
from packhorse.packages.path_filter import PathFilter
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import decode_package
from packhorse.wire.record import Undecodable

Content = dict[str, Any]
MERE_FOLDER: Any = ("folder", {}, ())


def fold(
    records: Iterable[Record],
    blobs: BlobStore,
    *,
    removed: Collection[int] = (),
    up_to: int | None = None,
    start: Content | None = None,
) -> Content:
    """Return path -> (type, properties, binaries) after the packages, minus those removed."""
    content = dict(start or {})
    known: dict[tuple[str, str], tuple[int, int]] = {}
    for record in records:
        if up_to is not None and record.offset > up_to:
            break
        try:
            package = decode_package(record.headers, record.value)
        except Undecodable:
            if record.offset in removed:
                continue
            raise
        entry = package.entry
        subscription, number = (
            (entry.publisher_agent, entry.producer),
            (entry.epoch, entry.sequence),
        )
        if entry.producer and number <= known.get(subscription, (-1, -1)):
            continue
        known[subscription] = number
        if record.offset not in removed:
            _apply(package, content, blobs)
    return content


def _apply(package: PackageMessage, content: Content, blobs: BlobStore) -> None:
    entry = package.entry
    roots = entry.deep_paths
    if entry.action is Action.DELETE:
        roots = (*entry.paths, *entry.deep_paths)
    if entry.action in (Action.ADD, Action.DELETE):
        cleared = [path for path in content if any(_holds(root, path) for root in roots)]
        for path in cleared:
            if _in_range(path, entry):
                del content[path]
    for node in unpack(package, blobs):
        for above in _above(node.path):
            content.setdefault(above, MERE_FOLDER)
        content[node.path] = plain(node)


def filtered(content: Content, path_filter: PathFilter) -> Content:
    """Return what the filter takes of the author's content, by the author's paths.

    A mere folder above what it excludes or maps counts as nothing.
    """
    names = path_filter.exclude_properties
    return {
        path: (
            kind,
            _without(properties, names),
            tuple(b for b in binaries if _stays(b.name, names)),
        )
        for path, (kind, properties, binaries) in content.items()
        if path_filter.holds(path) and not _may_be_missing(path, content[path], path_filter)
    }


def as_authored(found: Content, path_filter: PathFilter) -> tuple[Content, Content]:
    """Return a subscriber's content by the author's paths, and what the filter does not place."""
    taken, others = Content(), Content()
    for path, node in found.items():
        authored = _authored(path, path_filter)
        if authored is None:
            others[path] = node
        elif not _may_be_missing(authored, node, path_filter):
            taken[authored] = node
    return taken, others


def _authored(path: str, path_filter: PathFilter) -> str | None:
    candidates = [path] + [
        source + path[len(target) :]
        for source, target in path_filter.map_paths
        if _holds(target, path)
    ]
    placed = (
        one for one in candidates if path_filter.holds(one) and _own(one, path_filter) == path
    )
    return next(placed, None)


def _own(path: str, path_filter: PathFilter) -> str:
    """Map by the longest of the paths at or above a node."""
    above = [pair for pair in path_filter.map_paths if _holds(pair[0], path)]
    source, target = max(above, key=lambda pair: len(pair[0]), default=("", ""))
    return target + path[len(source) :]


def _may_be_missing(path: str, node: Any, path_filter: PathFilter) -> bool:
    return bool(node == MERE_FOLDER and path in path_filter.may_be_folders)


def _without(properties: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: one for name, one in properties.items() if _stays(name, names)}


def _stays(name: str, names: Collection[str]) -> bool:
    return not any(fnmatchcase(name, one) for one in names)


def plain(node: Node) -> Any:
    return (
        node.type,
        json.loads(node.properties),
        tuple(sorted(node.binaries, key=lambda b: b.name)),
    )


def _holds(root: str, path: str) -> bool:
    return root in ("/", path) or path.startswith(root + "/")


def _in_range(path: str, entry: PackageEntry) -> bool:
    """Compare by bytes, as the words say, and not by characters, as the product does."""
    first, end = entry.range_from.encode(), entry.range_to.encode()
    return first <= path.encode() and (not end or path.encode() < end)


def _above(path: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path
