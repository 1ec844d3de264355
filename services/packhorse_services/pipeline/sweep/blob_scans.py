"""The blob store as a source: listings by shard, and the nodes in stored bodies and parts."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from packhorse.blobs.api import BlobMissing, BlobStore, StoredBlob
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.errors import PackhorseError, Permanent
from packhorse.packages.compression import decompress_up_to
from packhorse.packages.format import decoded, messages_of
from packhorse.packages.limits import LIMITS, PackageRefused
from packhorse.snapshots.parts import changes_of
from packhorse.snapshots.snapshot import is_part
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.sweep.work import FindingKind, Found, once, references

Shards = Sequence[str]
PACKAGES, PARTS = "packages", "snapshots"


def shard_groups(parts: int) -> list[list[str]]:
    """Return the 256 shards in up to `parts` groups, the pieces of the scans here."""
    shards = [f"{number:02x}" for number in range(256)]
    return [shards[start::parts] for start in range(min(parts, len(shards)))]


@dataclass(frozen=True)
class BlobListing:
    """Lists some shards of the kinds of blobs that may go."""

    blobs_url: str

    def __call__(self, shards: Shards, /) -> Iterator[StoredBlob]:
        """Yield the shards' blobs."""
        with closing(open_blobs(self.blobs_url)) as blobs:
            for shard in shards:
                for kind in ("binaries", "packages"):
                    yield from blobs.list(f"{kind}/{shard}/")


@dataclass(frozen=True)
class StoredBodies:
    """A `BlobScan` of stored bodies, or of snapshots' parts, whoever may need them."""

    blobs_url: str
    kind: str

    def listed(self, shards: Shards, /) -> Iterator[StoredBlob]:
        """Yield those in some shards."""
        with closing(open_blobs(self.blobs_url)) as blobs:
            for shard in shards:
                found = blobs.list(f"{self.kind}/{shard}/")
                yield from (one for one in found if self.kind == PACKAGES or is_part(one.key))

    def read(self, blobs: Iterator[StoredBlob], /) -> Iterator[tuple[StoredBlob, Found]]:
        """Yield what their nodes refer to.

        A blob among the packages that is none, or is damaged, is `UNREADABLE`: nobody can import
        it, so it needs nothing. Should the log have it, it counts as a body that was not read.
        """
        with closing(open_blobs(self.blobs_url)) as store:
            for blob in blobs:
                for found in once(self._inside(blob.key, store)):
                    yield blob, found

    def _inside(self, key: str, blobs: BlobStore) -> Iterator[Found]:
        try:
            for node in _nodes(key, blobs):
                yield from references(node.binaries)
        except BlobMissing:
            if blobs.head(key) is not None:
                raise
            return  # removed since it was listed: nobody reads it any more
        except PackhorseError as error:
            if self.kind != PACKAGES or not _is_none(error):
                raise TaskRefused(
                    f"{key} can't be read, so nobody knows what it needs: {error}"
                ) from error
            yield Found(FindingKind.UNREADABLE, key)
        else:
            yield Found(FindingKind.READ, key)


def _nodes(key: str, blobs: BlobStore) -> Iterator[Node]:
    """Yield the nodes of a blob of which only the key is known, in constant memory.

    The format is verified to its end; a digest is not, since nobody has said one. Who imports
    nodes uses `packages.body` or `snapshots.parts.read_part`.
    """
    messages = messages_of(decompress_up_to(blobs.get(key), LIMITS.content_bytes))
    if is_part(key):
        return (change.now for change in changes_of(messages) if change.now)
    return map(decoded, messages)


def _is_none(error: PackhorseError) -> bool:
    """Return whether no build reads such bytes; one that allows more may read what is refused."""
    return isinstance(error, Permanent) and not isinstance(error, PackageRefused)
