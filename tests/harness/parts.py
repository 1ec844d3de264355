"""Packages that carry a part of a subtree, and trees cut into them."""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node, is_within
from packhorse.packages.body import pack
from packhorse.packages.limits import PACKAGE_TYPE, PART_TYPE
from packhorse.wire.messages import Action, PackageEntry, PackageMessage


def part_of_subtree(
    deep: str, first: str, end: str, nodes: Iterable[Node], blobs: BlobStore
) -> PackageMessage:
    """Return the package that makes a range of a subtree, or all of it, exactly `nodes`."""
    package_id = f"dstrpck-1-{uuid.uuid4().hex[:16]}"
    packed = pack(nodes, package_id, blobs)
    entry = PackageEntry(
        package_id,
        "main",
        Action.ADD,
        deep_paths=(deep,),
        body_length=packed.length,
        node_count=packed.node_count,
        range_from=first,
        range_to=end,
    )
    kind = PART_TYPE if first or end else PACKAGE_TYPE
    return PackageMessage(entry, packed.body, package_type=kind)


def cut(
    deep: str, nodes: Sequence[Node], bounds: Iterable[str], blobs: BlobStore
) -> Iterator[PackageMessage]:
    """Yield the parts of a subtree between `bounds`, which lie below `deep`, in order."""
    cuts = sorted(bounds, key=str.encode)
    for first, end in itertools.pairwise(["", *cuts, ""]):
        held = [
            node
            for node in nodes
            if is_within(node.path, deep)
            and first.encode() <= node.path.encode()
            and (not end or node.path.encode() < end.encode())
        ]
        yield part_of_subtree(deep, first, end, held, blobs)
