"""Nodes in a blob of which only the key is known: a stored body, or a part of a snapshot."""

from collections.abc import Iterator

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node
from packhorse.packages.compression import decompress_up_to
from packhorse.packages.format import read_nodes
from packhorse.packages.limits import LIMITS, Limits


def stored_nodes(key: str, blobs: BlobStore, limits: Limits = LIMITS) -> Iterator[Node]:
    """Yield the nodes of a blob, in constant memory, to see what they refer to.

    The format is verified to its end, a digest is not: nobody told one. Whoever imports the nodes
    uses `packages.body` or `snapshots.part`. Raises `PackageCorrupt`, `PackageRefused`,
    `BlobMissing`, `BlobStoreUnavailable`, `Undecodable`, `InvalidPath`, `InvalidNode`.
    """
    yield from read_nodes(decompress_up_to(blobs.get(key), limits.content_bytes), limits)
