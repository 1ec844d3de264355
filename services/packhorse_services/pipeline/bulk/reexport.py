"""A part once more, of a newer snapshot: in this process, for parts are seldom stale."""

import secrets
import time
from contextlib import closing
from dataclasses import replace

from packhorse.blobs.open import open_blobs
from packhorse.content.parts import SubtreePart
from packhorse.packages.body import pack
from packhorse.packages.package_id import RANDOM_BITS, make_package_id
from packhorse_services.pipeline.bulk.snapshot import author_snapshot
from packhorse_services.pipeline.bulk.state import StoredPart


def export_again(part: StoredPart, database_url: str, blobs_url: str) -> StoredPart:
    """Export the range of `part` from a snapshot of its own, and store it as another package.

    Memory is constant. Raises `PathMissing` when the part begins with the deep path and that is
    gone, `TaskFailed`, `BlobStoreUnavailable`.
    """
    package_id = make_package_id(time.time_ns() // 10**6, secrets.randbits(RANDOM_BITS))
    within = SubtreePart.between(part.deep_path, part.range_from, part.range_to)
    with author_snapshot(database_url) as snapshot, closing(open_blobs(blobs_url)) as blobs:
        nodes = snapshot.nodes(part.deep_path, within)
        packed = pack(nodes, package_id, blobs, inline_bytes=0)
        return replace(
            part,
            package_id=package_id,
            body_sha256=packed.body.sha256.hex(),
            body_length=packed.length,
            content_length=packed.body.content_length,
            node_count=packed.node_count,
            seen=snapshot.seen,
        )
