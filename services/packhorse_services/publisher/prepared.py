"""Prepared packages: their bodies are in the blob store, exported by the caller (ADR 0018).

What keeps the order (R6): such a package goes out only if no package numbered since the caller's
snapshot carries state of the same paths. Otherwise the caller has to export it again.
"""

from collections.abc import Iterator, Sequence

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.errors import Permanent
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher import outbox, slot_state
from packhorse_services.publisher.distribute import DistributionRequest, PreparedBody
from packhorse_services.publisher.overlap import Footprint
from packhorse_services.publisher.pending import Pending
from packhorse_services.publisher.slot_state import Number, SlotState

_SNAPSHOTS = 8
_FAR = 1_000_000
_LATER = 20_000
"""Beyond that many packages since a snapshot, or with paths of the subtree, it is too old."""


class StalePackage(Permanent):
    """The package may be older than what was distributed since; nothing was published."""


class PackageIdUsed(Permanent):
    """The package id belongs to a package that was distributed already."""


class StoredPackageMissing(Permanent):
    """The blob store has no body for the package."""


class StoredPackageDiffers(Permanent):
    """The stored body is not the one that the request describes."""


def check_body(blobs: BlobStore, body: PreparedBody) -> None:
    """Look for a body in the blob store, without reading it.

    Raises `StoredPackageMissing`, `StoredPackageDiffers`, `BlobStoreUnavailable`.
    """
    found = blobs.head(body.key)
    if found is None:
        raise StoredPackageMissing(
            f"the blob store has no {body.key}; put the body there before you distribute it"
        )
    if found.length != body.length:
        raise StoredPackageDiffers(
            f"{body.key} has {found.length} bytes, and body_length says {body.length}; "
            "export it again under a new package id"
        )


class _Since:
    """What was numbered since one snapshot and is about one subtree."""

    def __init__(self, deep_path: str, seen: Number) -> None:
        self._subtree = Footprint(PackageEntry("", "", Action.ADD, deep_paths=(deep_path,)))
        self._seen, self._later = seen, list[Footprint]()
        self._certain = True

    def catch_up(self, connection: Connection, state: SlotState) -> None:
        """Look at what was numbered since the last time; `state` is what the snapshot shows."""
        (epoch, last), found = self._seen, 0
        distance = state.sequence - last
        if state.epoch != epoch or not 0 <= distance <= _FAR:
            self._certain = False
        if not self._certain:
            return
        for entry in outbox.entries_above(connection, self._seen):
            found += 1
            footprint = Footprint(entry)
            if footprint.overlaps(self._subtree):
                self._later.append(footprint)
        self._certain = found == distance and len(self._later) <= _LATER
        self._seen = state.last

    def overtakes(self, footprint: Footprint) -> bool:
        """Tell whether a package that was numbered since has, or may have, the same paths."""
        return not self._certain or any(later.overlaps(footprint) for later in self._later)


class PreparedChecks:
    """Tells which prepared packages can't go out, by the snapshot of the caller's transaction.

    The parts of a large subtree come one by one and from one snapshot, so what was numbered since
    is remembered from one to the next. Used by one thread, whose snapshots follow each other.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, Number], _Since] = {}

    def obstacles(
        self, connection: Connection, group: Sequence[Pending]
    ) -> dict[Pending, Permanent]:
        """Return why some of `group` can't go out; runs as the bookkeeper.

        The slot has to be held, or what is numbered behind this snapshot to be looked at later.
        """
        prepared = list(_prepared(group))
        if not prepared:
            return {}
        state = slot_state.read_state(connection)
        used = outbox.known(connection, [body.package_id for _, body in prepared])
        found: dict[Pending, Permanent] = {}
        for pending, body in prepared:
            if body.package_id in used:
                found[pending] = PackageIdUsed(
                    f"{body.package_id} was distributed already; export under a new package id"
                )
            elif self._is_stale(connection, state, pending.request, body):
                found[pending] = StalePackage(
                    "what this package carries may have been distributed anew since its export; "
                    "export it again, and send it with the same sequence"
                )
        return found

    def _is_stale(
        self,
        connection: Connection,
        state: SlotState,
        request: DistributionRequest,
        body: PreparedBody,
    ) -> bool:
        key = (request.deep_paths[0], body.seen)
        since = self._since.pop(key, None) or _Since(*key)
        self._since[key] = since  # the last one used is the last one dropped
        if len(self._since) > _SNAPSHOTS:
            del self._since[next(iter(self._since))]
        since.catch_up(connection, state)
        return since.overtakes(_footprint(request, body))


def _prepared(group: Sequence[Pending]) -> Iterator[tuple[Pending, PreparedBody]]:
    for pending in group:
        if pending.request.prepared is not None:
            yield pending, pending.request.prepared


def _footprint(request: DistributionRequest, body: PreparedBody) -> Footprint:
    return Footprint(
        PackageEntry(
            body.package_id,
            "",
            request.action,
            request.paths,
            request.deep_paths,
            range_from=body.range_from,
            range_to=body.range_to,
        )
    )
