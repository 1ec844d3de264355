"""What changes in a part, and the file of that beside it; no Spark."""

from collections.abc import Iterable
from typing import NamedTuple

from packhorse.blobs.api import BlobStore
from packhorse.snapshots.parts import Change, merged, write_changes
from packhorse.snapshots.snapshot import Part, PartFile, node_list_key
from packhorse_services.pipeline.history.node_lists import ListedChange, NodeList, listed_changes

_STEPS = 16
_DAY_MS = 24 * 3600 * 1000
_DAYS = 16
"""Changes stay beside a part for so many days to twice as many: what they replaced is there yet."""


def renewed(files: Iterable[PartFile], blobs: BlobStore) -> bool:
    """Renew files and their lists, and return whether all are there, the files with their length.

    So nobody who removes the base takes them before the new snapshot is published.
    """
    for file in files:
        found = blobs.renew(file.key)
        if found is None or found.length != file.length or not blobs.renew(node_list_key(file)):
            return False
    return True


class PartDifference(NamedTuple):
    """What happens to a part: characters that are written, and of nodes that go; nodes it gets."""

    more: int
    less: int
    nodes: int

    @property
    def size(self) -> int:
        """How many characters it gets, about: those of nodes that are replaced still count."""
        return self.more - self.less


UNCHANGED = PartDifference(0, 0, 0)


def stays(number: int, part: Part, now_ms: int) -> bool:
    """Return whether a part with its changes may go on as it is: they are not old yet."""
    if part.changes is None:
        return True
    return now_ms - part.changes.since_ms < _step(number, _DAYS * _DAY_MS)


def fits_beside(number: int, part: Part, difference: PartDifference, characters: int) -> bool:
    """Return whether all changes fit beside a part, which has so many characters with the last.

    They may have an eighth to a quarter of its bytes.
    """
    held = part.changes.content_length if part.changes else 0
    changed = (difference.more + difference.less) * part.content_length // max(1, characters)
    return held + changed <= _step(number, part.content_length // 8)


def _step(number: int, least: int) -> int:
    """Return this up to twice as much: not all parts are to be written anew on one day."""
    return least * (_STEPS + number % _STEPS) // _STEPS


def with_changes(
    part: Part, changes: Iterable[ListedChange], nodes: int, key: str, blobs: BlobStore
) -> Part:
    """Store all that has changed in a part, with its list; it has so many nodes after that.

    A path that is gone stays among its changes: the part's file may have it.
    """
    before = listed_changes(part.changes, blobs) if part.changes else ()
    later = (Change(change.path, change) for change in changes)
    noted = NodeList()
    after = write_changes(part, noted.changes(merged(before, later)), nodes, key, blobs)
    if after.changes:
        noted.store(after.changes, blobs)
    return after
