"""The task `snapshot`: fold the archive, write parts, and last the manifest that makes them one."""

import functools
import itertools
import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.snapshots.snapshot import (
    MANIFESTS,
    AppliedSequence,
    ContentSnapshot,
    InvalidSnapshot,
    Part,
    PartFile,
    ReportedState,
    is_part,
    left_out,
    new_id,
    node_list_key,
)
from packhorse.snapshots.store import all_of, manifest_keys, publish, read, remove
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.history.beginning import Beginning
from packhorse_services.pipeline.history.content import (
    Choice,
    ContentHistory,
    content_at,
    require_binaries,
)
from packhorse_services.pipeline.history.numbers import numbers_of
from packhorse_services.pipeline.history.target import HistoryTarget, target
from packhorse_services.pipeline.snapshot.continuing import ContinuedSnapshot
from packhorse_services.pipeline.snapshot.parts import PART_CHARACTERS, write_parts
from packhorse_services.pipeline.snapshot.reported_state import heard, require_heard_of
from packhorse_services.pipeline.storage.location import Location

LEFTOVER_MS = 24 * 3600 * 1000
"""A part that no manifest names and that is older than this is of no run that is at work."""

_ALL = "snapshots/"


def remove_leftovers(blobs: BlobStore, older_than_ms: int = LEFTOVER_MS) -> int:
    """Remove the parts' files that no manifest names, with their lists; return how many files.

    They are of runs that are dead, or of snapshots that were removed. One that was written or
    renewed lately may be of a run that is about to publish it. With a manifest that can't be read
    nothing is removed: nobody knows what it names. Ages are by the store's own clock (R28).
    """
    latest = blobs.now_ms() - older_than_ms
    try:
        named = {key for file in _named(blobs) for key in (file.key, node_list_key(file))}
    except InvalidSnapshot as error:
        logger.warning("no leftover parts are removed: a snapshot is unreadable: %s", error)
        return 0
    removed = 0
    for blob in blobs.list(_ALL):
        if blob.modified_ms > latest or blob.key.startswith(MANIFESTS) or blob.key in named:
            continue
        if blobs.delete_unless_renewed(blob.key, blob.modified_ms):
            removed += is_part(blob.key)
    return removed


def _named(blobs: BlobStore) -> Iterator[PartFile]:
    """Yield the files that manifests name. Raises `InvalidSnapshot` for one that can't be read."""
    for key in manifest_keys(blobs):
        try:
            yield from itertools.chain(*(part.files for part in read(key, blobs).parts))
        except BlobMissing:  # removed meanwhile
            continue
        except InvalidSnapshot as error:
            raise InvalidSnapshot(f"{key}: {error}") from error


def without_lost(blobs: BlobStore) -> list[ContentSnapshot]:
    """Return the snapshots, newest first; one whose parts are not all there is removed.

    Nobody can load it, and who finds it would not make it again.
    """
    found, is_there = [], functools.cache(lambda key: blobs.head(key) is not None)
    for snapshot in all_of(blobs):
        if all(is_there(file.key) for part in snapshot.parts for file in part.files):
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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What the snapshot is to be of."""

    offset: int | None = None
    """The newest archived package when None."""
    agents: tuple[str, ...] = ()
    """All that are archived when empty."""
    subscriber: str = ""
    leave_out: tuple[int, ...] = ()
    keep: int | None = None
    """How many snapshots like it stay; all when None."""
    part_characters: int = PART_CHARACTERS


@dataclass(frozen=True, slots=True)
class Made:
    """What a run has done."""

    snapshot: ContentSnapshot
    is_new: bool
    """False when the same snapshot was there already."""
    base: ContentSnapshot | None = None
    pruned: int = 0
    leftovers: int = 0
    """Files removed that no snapshot names any more, or ever did."""


def make_snapshot(
    spark: SparkSession,
    location: Location,
    package_topic: str,
    blobs_url: str,
    request: SnapshotRequest,
) -> Made:
    """Make the snapshot, and then tidy up. Killed anywhere, it may be run again.

    Raises `TaskRefused` when the history is incomplete or unreadable, nothing is archived, or the
    archive has never heard of the subscriber; the blob store's errors; what `translated` raises.
    """
    with closing(open_blobs(blobs_url)) as blobs:
        with translated("snapshot"):
            made = _Run(spark, location, package_topic, blobs_url, blobs, request).run()
        leftovers = remove_leftovers(blobs)  # first, so whoever reads what is pruned may end
        pruned = prune(blobs, made.snapshot, request.keep) if request.keep else []
        return replace(made, pruned=len(pruned), leftovers=leftovers)


@dataclass(frozen=True, slots=True)
class _Run:
    spark: SparkSession
    location: Location
    package_topic: str
    blobs_url: str
    blobs: BlobStore
    request: SnapshotRequest

    def run(self) -> Made:
        wanted = self.request
        snapshots = without_lost(self.blobs)
        require_heard_of(self.location, wanted.subscriber, snapshots)
        place = self.location, self.package_topic
        point = target(*place, agents=wanted.agents, offset=wanted.offset, snapshots=snapshots)
        if (same := _same(snapshots, point, wanted)) is not None:
            return Made(same, is_new=False)
        # Before what was removed is read: more may be left out than is promised, never less.
        reported = heard(self.spark, self.location, point, wanted.subscriber)
        choice = Choice(wanted.subscriber, wanted.leave_out)
        with content_at(self.spark, self.location, self.blobs_url, point, choice) as found:
            content, begin = found
            if wanted.offset is not None:
                require_binaries(
                    content.unordered(),
                    self.blobs_url,
                    what="binaries of that offset",
                    otherwise="choose a later offset",
                )
            made = self._written(content, point, begin, reported)
        publish(made, self.blobs)
        about = {"snapshot": made.id, "offset": made.offset, "nodes": made.nodes}
        logger.info("snapshot made", extra=about)
        return Made(made, is_new=True, base=begin.base)

    def _written(
        self,
        content: ContentHistory,
        point: HistoryTarget,
        begin: Beginning,
        reported: tuple[ReportedState, ...],
    ) -> ContentSnapshot:
        snapshot_id = new_id()
        parts = self._parts(content, begin.base, snapshot_id)
        return ContentSnapshot(
            id=snapshot_id,
            made_ms=self.blobs.now_ms(),
            journal_id=point.journal_id,
            offset=point.offset,
            package_id=point.package_id,
            publisher_agents=point.agents,
            subscriber=self.request.subscriber,
            nodes=sum(part.held for part in parts),
            parts=tuple(parts),
            sequences=_sequences(self.location, point, begin),
            told=reported,
            left_out=begin.left_out,
        )

    def _parts(
        self, content: ContentHistory, base: ContentSnapshot | None, snapshot_id: str
    ) -> list[Part]:
        size, parts = self.request.part_characters, None
        if base is not None and base.nodes:
            now_ms = self.blobs.now_ms()
            begun = ContinuedSnapshot(snapshot_id, base, self.blobs_url, size, now_ms)
            parts = begun.write(content)
        if parts is None:
            with content.together() as every:
                parts = write_parts(every, snapshot_id, self.blobs_url, size)
        return parts


def _same(
    snapshots: Iterable[ContentSnapshot], point: HistoryTarget, request: SnapshotRequest
) -> ContentSnapshot | None:
    """Return the snapshot of this content if there is one, never one for a subscriber."""
    if request.subscriber:
        return None
    absent = left_out(offset for offset in request.leave_out if offset <= point.offset)
    for snapshot in snapshots:
        if (
            (snapshot.journal_id, snapshot.offset) == (point.journal_id, point.offset)
            and snapshot.package_id == point.package_id
            and set(snapshot.publisher_agents) == set(point.agents)
            and not snapshot.subscriber
            and snapshot.left_out == absent
        ):
            return snapshot
    return None


def _sequences(
    location: Location, point: HistoryTarget, begin: Beginning
) -> tuple[AppliedSequence, ...]:
    """Return the highest number of each producer up to the target, the base's among them (R27)."""
    spans = dict.fromkeys(point.agents, (begin.numbered_after, point.offset))
    applied = begin.base.sequences if begin.base else ()
    return numbers_of(location, point.version, point.journal_id, spans, applied).highest
