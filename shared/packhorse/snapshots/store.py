"""The snapshots of a blob store: published by their manifest, found newest first, removed."""

import heapq
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore
from packhorse.packages.limits import LIMITS
from packhorse.runtime.reasons import reason_of
from packhorse.snapshots.snapshot import (
    MANIFESTS,
    ContentSnapshot,
    InvalidSnapshot,
    is_part,
    manifest_key,
    offset_of,
)
from packhorse.wire.package_codec import is_producer

MAX_MANIFEST_BYTES = 32 * 1024**2
logger = logging.getLogger(__name__)

_MOST_SNAPSHOTS = 100_000


def publish(snapshot: ContentSnapshot, blobs: BlobStore) -> None:
    """Make stored parts a snapshot that others find; publishing it again is a success.

    Raises `InvalidSnapshot`, `BlobCorrupt` when its key holds another manifest, and
    `BlobStoreUnavailable`.
    """
    key, data = manifest_key(snapshot), encode(snapshot)
    if not blobs.put(key, [data]).created and _bytes(key, blobs) != data:
        raise BlobCorrupt(f"{key} holds another manifest; use a new snapshot id")


def manifest_keys(blobs: BlobStore) -> list[str]:
    """Return the keys of all manifests, newest offset first; of a great many the newest."""
    found = (blob.key for blob in blobs.list(MANIFESTS))
    return heapq.nlargest(_MOST_SNAPSHOTS, found)


def read(key: str, blobs: BlobStore) -> ContentSnapshot:
    """Return the snapshot of a manifest.

    Raises `InvalidSnapshot` for one that this build can't read, `BlobMissing` for one that was
    removed, and `BlobStoreUnavailable`.
    """
    snapshot = decode(_bytes(key, blobs))
    if manifest_key(snapshot) != key:
        raise InvalidSnapshot("the manifest lies under another snapshot's name")
    return snapshot


def all_of(blobs: BlobStore) -> Iterator[ContentSnapshot]:
    """Yield all snapshots, newest offset first; one that can't be read is left out with a warning.

    Who decides what nobody needs must not use this: it uses `manifest_keys` and `read`.
    """
    return _readable(manifest_keys(blobs), blobs)


def usable(
    blobs: BlobStore,
    *,
    journal_id: str,
    publisher_agents: Collection[str],
    subscribers: Collection[str],
    at_least: int,
) -> Iterator[ContentSnapshot]:
    """Yield the snapshots of exactly these agents from `at_least` up, newest offset first.

    `subscribers` are those for whom it may be made; "" among them is for everybody.
    """
    recent = [key for key in manifest_keys(blobs) if offset_of(key) >= at_least]
    for snapshot in _readable(recent, blobs):
        if (
            snapshot.journal_id == journal_id
            and set(snapshot.publisher_agents) == set(publisher_agents)
            and snapshot.subscriber in subscribers
        ):
            yield snapshot


def remove(snapshot: ContentSnapshot, blobs: BlobStore) -> None:
    """Remove a snapshot: its manifest, for its parts may be another one's, too.

    Those that no manifest names go when the pipeline removes leftovers.
    """
    blobs.delete(manifest_key(snapshot))


def _readable(keys: list[str], blobs: BlobStore) -> Iterator[ContentSnapshot]:
    for key in keys:
        try:
            snapshot = read(key, blobs)
        except BlobMissing:
            continue
        except InvalidSnapshot as error:
            logger.warning("a snapshot is unreadable: %s: %s", key, error)
            continue
        yield snapshot


def _bytes(key: str, blobs: BlobStore) -> bytes:
    data = bytearray()
    for chunk in blobs.get(key):
        data += chunk
        if len(data) > MAX_MANIFEST_BYTES:
            raise InvalidSnapshot(f"the manifest has more than {MAX_MANIFEST_BYTES} bytes")
    return bytes(data)


@validated(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
@dataclass(frozen=True)
class _Manifest:
    format: Literal[1]
    snapshot: ContentSnapshot


_MANIFEST = TypeAdapter(_Manifest)


def encode(snapshot: ContentSnapshot) -> bytes:
    """Return the manifest. Raises `InvalidSnapshot` for one that nobody would read."""
    data: bytes = _MANIFEST.dump_json(_Manifest(1, snapshot), warnings=False)
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidSnapshot(f"the manifest has {len(data)} bytes, not {MAX_MANIFEST_BYTES}")
    if decode(data) != snapshot:
        raise InvalidSnapshot("the snapshot does not survive its manifest")
    return data


def decode(data: bytes) -> ContentSnapshot:
    """Return the snapshot of a manifest of at most `MAX_MANIFEST_BYTES`.

    Raises `InvalidSnapshot` for another format, for fields that are missing, unknown or out of
    bounds, for parts that are none, and for sums that are wrong.
    """
    try:
        snapshot = _MANIFEST.validate_json(data).snapshot
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        reason = reason_of(str(first["msg"]))
        raise InvalidSnapshot(f"{where[:200] or 'the manifest'}: {reason}") from None
    _check_parts(snapshot)
    if not all(is_producer(applied.producer) for applied in snapshot.sequences):
        raise InvalidSnapshot("a producer is none")
    return snapshot


def _check_parts(snapshot: ContentSnapshot) -> None:
    """Raise `InvalidSnapshot` unless all files are those of snapshots, each once."""
    files = [file for part in snapshot.parts for file in part.files]
    keys = {file.key for file in files}
    if len(keys) < len(files) or not all(map(is_part, keys)):
        raise InvalidSnapshot("the parts are not those of snapshots, each once")
    if snapshot.nodes != sum(part.held for part in snapshot.parts):
        raise InvalidSnapshot("the parts together have not the nodes that the snapshot has")
    for part in snapshot.parts:
        counts = part.nodes, part.held, part.changes.entries if part.changes else 0
        length = max(file.content_length for file in part.files)
        if length > LIMITS.content_bytes or max(counts) > LIMITS.nodes:
            raise InvalidSnapshot(f"{part.key} is larger than a part may be")
