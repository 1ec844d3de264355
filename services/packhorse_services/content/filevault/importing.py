"""A content package into a tree: nodes batch by batch, their binaries durable before them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import ValidationError

from packhorse.content.batches import batches
from packhorse.content.json_limits import MAX_PROPERTIES_BYTES, check_json
from packhorse.content.node import Binary, InvalidNode, Node
from packhorse.content.schemas import BinaryReference, NodeBody
from packhorse.content.tree import FOLDER
from packhorse.runtime.reasons import reason_of
from packhorse.runtime.strict_json import same_json
from packhorse_services.content.filevault.package import (
    ContentPackage,
    LeftOut,
    PackagedNode,
    media_type,
)
from packhorse_services.content.transfer.counting import (
    ImportCounts,
    TransferCounter,
    TransferWatcher,
)
from packhorse_services.content.transfer.sources import UNREADABLE, SourceEntry, examined

_BATCH_NODES = 1_000
_BATCH_BYTES = 8 * 1024**2


class NodeTree(Protocol):
    """A tree that takes nodes of any type."""

    def existing(self, paths: Sequence[str]) -> Mapping[str, Node]:
        """Return those of the nodes that are there, with properties and binaries."""
        ...

    def put_content(self, entry: SourceEntry, sha256: str) -> None:
        """Store a file's bytes, which have this SHA-256. Raises `UNREADABLE`."""
        ...

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        """Write nodes, and the folders above them that are missing."""
        ...


class PackageImport:
    """One import, of which `watcher` is told after each batch.

    What is there already and not in the package stays: nothing is removed. Run again it goes on.
    """

    def __init__(self, destination: NodeTree, watcher: TransferWatcher) -> None:
        self._to, self._counter = destination, TransferCounter(watcher)

    def run(self, package: ContentPackage) -> ImportCounts:
        """Import everything. Raises what the destination raises."""
        nodes = (one for one in package.nodes() if not self._left_out(one))
        for batch in batches(nodes, _size, most=_BATCH_NODES, most_size=_BATCH_BYTES):
            self._import({one.path: one for one in batch if isinstance(one, PackagedNode)})
            self._counter.report()
        return self._counter.counts

    def _left_out(self, one: PackagedNode | LeftOut) -> bool:
        if isinstance(one, PackagedNode):
            return False
        told = self._counter.refuse if one.problem else self._counter.skip
        told(one.name, one.reason)
        return True

    def _import(self, batch: Mapping[str, PackagedNode]) -> None:
        existing, counts = self._to.existing(list(batch)), self._counter.counts
        nodes = []
        for path, packaged in batch.items():
            before = existing.get(path)
            if before is not None and (packaged.keeps or _is_only_above(packaged)):
                counts.unchanged += 1
                continue
            try:
                node = _described(packaged)
                if before is not None and _same(before, node):
                    counts.unchanged += 1
                    continue
                for binary in node.binaries:
                    self._to.put_content(packaged.contents[binary.name], binary.sha256)
                    counts.bytes += binary.length
            except (InvalidNode, *UNREADABLE) as error:
                self._counter.refuse(path, str(error))
            else:
                nodes.append(node)
        self._to.put_nodes(nodes)
        counts.nodes += len(nodes)


def _described(packaged: PackagedNode) -> Node:
    """Return a node with the digests of its binaries. Raises `InvalidNode` and `UNREADABLE`."""
    properties, binaries = packaged.json(), {}
    for name, entry in sorted(packaged.contents.items()):
        _, sha256, length = examined(entry)
        binaries[name] = Binary(name, sha256, length, media_type(packaged, name))
    _check(packaged, properties, binaries)
    return Node(packaged.path, packaged.type, properties, tuple(binaries.values()))


def _check(packaged: PackagedNode, properties: str, binaries: Mapping[str, Binary]) -> None:
    """Raise `InvalidNode` for what no repository holds, as the content service does."""
    if len(properties.encode()) > MAX_PROPERTIES_BYTES:
        raise InvalidNode(f"its properties have more than {MAX_PROPERTIES_BYTES} bytes")
    check_json(properties)
    try:
        references = {
            name: BinaryReference(
                digest=f"sha256:{one.sha256}", length=one.length, media_type=one.media_type
            )
            for name, one in binaries.items()
        }
        NodeBody(type=packaged.type, binaries=references)
    except ValidationError as error:
        raise InvalidNode("; ".join(reason_of(one["msg"]) for one in error.errors())) from None


def _is_only_above(packaged: PackagedNode) -> bool:
    """Return whether the package has a folder there alone, without a word of what it is."""
    return packaged.type == FOLDER and not packaged.properties


def _same(before: Node, node: Node) -> bool:
    return (
        before.type == node.type
        and sorted(before.binaries, key=lambda one: one.name) == list(node.binaries)
        and same_json(before.properties, node.properties)
    )


def _size(one: PackagedNode | LeftOut) -> int:
    return len(one.json()) if isinstance(one, PackagedNode) else 0
