"""Prepared packages: their bodies are in the blob store, exported by the caller (ADR 0018).

What keeps the order (R6): such a package goes out only if no package numbered since the caller's
snapshot carries state of the same paths. Otherwise the caller has to export it again.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.errors import Permanent
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.outbox import append_state, outbox_rows
from packhorse_services.publisher.outbox.append_state import AppendState, Number
from packhorse_services.publisher.outbox.request import (
    DistributionRequest,
    Draft,
    Pending,
    PreparedBody,
)
from packhorse_services.publisher.publish.overlap import Footprint, Run

_SNAPSHOTS = 8
_LATER_BYTES = 4 * 1024**2
"""Beyond that many bytes of paths that were distributed since a snapshot, it is too old."""

FAR = 250_000
"""How many packages are looked at for one group; a snapshot that is farther away is too old."""
FAR_UNDER_LOCK = 5_000
"""The same while others wait for the append lock."""


class StalePackage(Permanent):
    """The package may be older than what was distributed since; nothing was published."""


class PackageIdUsed(Permanent):
    """The package id belongs to a package that was distributed already."""


class StoredPackageMissing(Permanent):
    """The blob store has no body for the package."""


class StoredPackageDiffers(Permanent):
    """The stored body is not the one that the request describes."""


def fault_of(blobs: BlobStore, body: PreparedBody, grace: timedelta) -> Permanent | None:
    """Look for a body in the blob store, without reading it; return why it can't go out.

    The cleanup removes bodies that belong to no package once they are as old as `grace` (R21).
    One of half that age might be gone before its package is committed, and counts as missing.
    Raises `BlobStoreUnavailable`.
    """
    found = blobs.head(body.key)
    if found is None:
        return StoredPackageMissing(
            f"the blob store has no {body.key}; put the body there before you distribute it"
        )
    if found.length != body.length:
        return StoredPackageDiffers(
            f"{body.key} has {found.length} bytes, and body_length says {body.length}; "
            "export it again under a new package id"
        )
    if (blobs.now_ms() - found.modified_ms) * timedelta(milliseconds=1) > grace / 2:
        return StoredPackageMissing(
            f"{body.key} is older than {grace / 2} and may be removed at any time; export it "
            "again under a new package id"
        )
    return None


def without_used(
    connection: Connection, drafts: Mapping[Pending, Draft]
) -> Mapping[Pending, Draft]:
    """Refuse the prepared packages whose ids others have by now, and return the other drafts.

    Runs as the bookkeeper and holds the lock: nobody else takes an id meanwhile.
    """
    prepared = list(_prepared(drafts))
    if not prepared:
        return drafts
    used = outbox_rows.known(connection, [body.package_id for _, body in prepared])
    for pending, body in prepared:
        if body.package_id in used:
            pending.fail(_id_used(body))
        used.add(body.package_id)
    return {one: draft for one, draft in drafts.items() if not one.future.done()}


class _Since:
    """What was numbered since one snapshot and is about one subtree."""

    def __init__(self, deep_path: str, seen: Number) -> None:
        self._subtree = Footprint(PackageEntry("", "", Action.ADD, deep_paths=(deep_path,)))
        self._seen = seen
        self._nodes, self._runs, self._bytes = set[str](), set[Run](), 0
        self._certain, self._caught_up = True, False

    def catch_up(self, connection: Connection, state: AppendState, most: int) -> int:
        """Look at what was numbered since the last time; `state` is what the snapshot shows.

        Looks at no more than `most` packages, and returns at how many it did.
        """
        (epoch, last), found = self._seen, 0
        distance = state.sequence - last
        self._caught_up = distance <= most
        if state.epoch != epoch or distance < 0:
            self._give_up()
        if not self._certain or not self._caught_up:
            return 0
        for entry in outbox_rows.entries_above(connection, self._seen):
            found += 1
            self._note(*Footprint(entry).shared_with(self._subtree))
            if self._bytes > _LATER_BYTES:
                break
        if found != distance or self._bytes > _LATER_BYTES:
            self._give_up()
        self._seen = state.last
        return found

    def overtakes(self, footprint: Footprint) -> bool:
        """Return whether a package that was numbered since has, or may have, the same paths."""
        if not self._certain or not self._caught_up:
            return True
        return footprint.overlaps_any(self._nodes, self._runs)

    def _note(self, nodes: Iterable[str], runs: Iterable[Run]) -> None:
        for node in nodes:
            if node not in self._nodes:
                self._nodes.add(node)
                self._bytes += sys.getsizeof(node)
        for run in runs:
            if run not in self._runs:
                self._runs.add(run)
                self._bytes += sum(map(sys.getsizeof, run))

    def _give_up(self) -> None:
        self._certain = False
        self._nodes.clear()
        self._runs.clear()


class PreparedChecks:
    """Knows which prepared packages can't go out, by the snapshot of the caller's transaction.

    The parts of a large subtree come one by one and from one snapshot, so what was numbered since
    is remembered from one to the next. Used by one thread, whose snapshots follow each other.
    """

    def __init__(self, snapshots: int = _SNAPSHOTS) -> None:
        self._snapshots = snapshots
        self._since: dict[tuple[str, Number], _Since] = {}

    def obstacles(
        self, connection: Connection, group: Sequence[Pending], most: int = FAR
    ) -> dict[Pending, Permanent]:
        """Return why some of `group` can't go out; runs as the bookkeeper.

        The lock has to be held, or what is numbered behind this snapshot to be looked at later.
        Looks at no more than `most` packages in all; what needs more is stale.
        """
        prepared = list(_prepared(group))
        if not prepared:
            return {}
        state = append_state.read_state(connection)
        used = outbox_rows.known(connection, [body.package_id for _, body in prepared])
        found: dict[Pending, Permanent] = {}
        for pending, body in prepared:
            if body.fault is not None:
                found[pending] = body.fault
                continue
            if body.package_id in used:
                found[pending] = _id_used(body)
                continue
            since = self._remembered(pending.request.deep_paths[0], body.seen)
            most -= since.catch_up(connection, state, most)
            if since.overtakes(_footprint(pending.request, body)):
                found[pending] = StalePackage(
                    "what this package carries may have been distributed anew since its export; "
                    "export it again, and send it with the same sequence"
                )
        return found

    def _remembered(self, deep_path: str, seen: Number) -> _Since:
        key = deep_path, seen
        since = self._since.pop(key, None) or _Since(deep_path, seen)
        self._since[key] = since  # the last one used is the last one dropped
        if len(self._since) > self._snapshots:
            del self._since[next(iter(self._since))]
        return since


def _id_used(body: PreparedBody) -> PackageIdUsed:
    return PackageIdUsed(
        f"{body.package_id} was distributed already; export under a new package id"
    )


def _prepared(group: Iterable[Pending]) -> Iterator[tuple[Pending, PreparedBody]]:
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
