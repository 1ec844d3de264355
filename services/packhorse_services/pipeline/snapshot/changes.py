"""What changes in a part, and the file of that beside it; no Spark."""

from collections.abc import Iterable
from typing import NamedTuple

from packhorse.blobs.api import BlobStore
from packhorse.snapshots.parts import Change, merged, write_changes
from packhorse.snapshots.snapshot import Part, PartChanges, node_list_key
from packhorse_services.pipeline.history.node_lists import ListedChange, NodeList, listed_changes

_SHARES = 16
"""Of a part that is written anew: each part has one of so many between an eighth and a quarter."""


def renewed(files: Iterable[Part | PartChanges], blobs: BlobStore) -> bool:
    """Renew files and their lists, and return whether all are there, the files with their length.

    So nobody who removes the base takes them before the new snapshot is published.
    """
    for file in files:
        found = blobs.renew(file.key)
        if found is None or found.length != file.length or not blobs.renew(node_list_key(file)):
            return False
    return True


class PartDifference(NamedTuple):
    """What happens to a part: the characters that are written and that go, and nodes it gets."""

    more: int
    less: int
    nodes: int

    @property
    def size(self) -> int:
        """How many characters it gets."""
        return self.more - self.less


UNCHANGED = PartDifference(0, 0, 0)


def fits_beside(number: int, part: Part, difference: PartDifference) -> bool:
    """Return whether changes stay a file beside the part's: an eighth to a quarter of it at most.

    Each part has a share of its own, so that they are not all written anew on one day.
    """
    held = part.changes.content_length if part.changes else 0
    most = part.content_length * (_SHARES + number % _SHARES) // (8 * _SHARES)
    return held + difference.more + difference.less <= most


def with_changes(
    part: Part, changes: Iterable[ListedChange], nodes: int, key: str, blobs: BlobStore
) -> Part:
    """Store all that has changed in a part, with its list; it has so many nodes after that."""
    before = listed_changes(part.changes, blobs) if part.changes else ()
    later = (Change(change.path, change) for change in changes)
    noted = NodeList()
    after = write_changes(part, noted.changes(merged(before, later)), nodes, key, blobs)
    if after.changes:
        noted.store(after.changes, blobs)
    return after
