"""What a subscriber must hold, computed from the journal alone: the model that the suites trust.

It shares the decoders with the product and nothing of the import.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node
from packhorse.messaging.api import Journal, LogEnd, Record
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
    """Return what the filter takes; a mere folder above what it excludes counts as nothing."""
    return {
        path: node
        for path, node in content.items()
        if path_filter.holds(path)
        and not (node == MERE_FOLDER and path in path_filter.may_be_folders)
    }


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


def packages(journal: Journal, topic: str) -> list[Record]:
    """Return every record of a topic's partition 0 that is in the log now."""
    end = journal.bounds(topic).next
    records: list[Record] = []
    with journal.reader(topic, LogEnd.OLDEST, partition=0) as reader:
        while journal.bounds(topic).oldest < end and (not records or records[-1].offset < end - 1):
            batch = reader.poll(10.0)
            assert batch, f"{topic} ends at {end}, but nothing comes after {records[-1:]}"
            records += batch
    return records
