"""What old snapshots and runs that were killed have left in the blob store."""

import logging

from packhorse.blobs.api import BlobStore
from packhorse.snapshots.snapshot import MANIFESTS, ContentSnapshot
from packhorse.snapshots.store import all_of, remove

logger = logging.getLogger(__name__)

LEFTOVER_MS = 24 * 3600 * 1000
"""A part without a manifest that is older than this belongs to a run that is dead."""

_ALL = "snapshots/"


def remove_leftovers(blobs: BlobStore, older_than_ms: int = LEFTOVER_MS) -> int:
    """Remove the parts that no manifest will ever name, and return how many those were.

    A part is kept as long as there is a manifest of its snapshot, whether it can be read or not.
    Ages are by the store's own clock (R28).
    """
    latest = blobs.now_ms() - older_than_ms
    known = {blob.key.rpartition("-")[2] for blob in blobs.list(MANIFESTS)}
    removed = 0
    for blob in blobs.list(_ALL):
        snapshot_id = blob.key.rpartition("/")[2].partition("-")[0]
        if blob.key.startswith(MANIFESTS) or snapshot_id in known or blob.modified_ms > latest:
            continue
        blobs.delete(blob.key)
        removed += 1
    return removed


def without_lost(blobs: BlobStore) -> list[ContentSnapshot]:
    """Return the snapshots, newest first; one whose parts are not all there is removed.

    Nobody can load it, and who finds it would not make it again.
    """
    found = []
    for snapshot in all_of(blobs):
        if all(blobs.head(part.key) is not None for part in snapshot.parts):
            found.append(snapshot)
        else:
            remove(snapshot, blobs)
            about = {"snapshot": snapshot.id, "offset": snapshot.offset}
            logger.warning("snapshot removed: parts of it are gone", extra=about)
    return found


def prune(blobs: BlobStore, made: ContentSnapshot, keep: int) -> list[ContentSnapshot]:
    """Remove all but the newest `keep` snapshots of the same agents and subscriber as `made`.

    `made` itself stays. Those of another journal are older than all of this one.
    """
    alike = [
        snapshot
        for snapshot in all_of(blobs)
        if set(snapshot.publisher_agents) == set(made.publisher_agents)
        and snapshot.subscriber == made.subscriber
        and snapshot.id != made.id
    ]
    alike.sort(
        key=lambda one: (one.journal_id == made.journal_id, one.offset, one.made_ms), reverse=True
    )
    gone = alike[max(0, keep - 1) :]
    for snapshot in gone:
        remove(snapshot, blobs)
        logger.info("snapshot removed", extra={"snapshot": snapshot.id, "offset": snapshot.offset})
    return gone
