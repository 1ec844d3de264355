"""One request to one package: what a caller asks for, and the message that goes out for it."""

import hashlib
import json
import random
from dataclasses import dataclass, replace

from psycopg import Connection

from packhorse.blobs.api import BlobStore, package_key
from packhorse.clock import Clock
from packhorse.errors import Permanent
from packhorse.messaging.numbered import Number
from packhorse.packages.body import pack
from packhorse.packages.build import export, require_absent
from packhorse.packages.limits import PACKAGE_TYPE, PART_TYPE
from packhorse.packages.package_id import RANDOM_BITS, make_package_id
from packhorse.wire.messages import Action, PackageBody, PackageEntry, PackageMessage
from packhorse_services.publisher.slot_state import Number as SlotNumber


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A body that its caller has exported and put into the blob store (ADR 0018)."""

    package_id: str
    sha256: str
    """64 lower-case hex digits, of the body as stored."""
    length: int
    content_length: int
    node_count: int
    seen: SlotNumber
    """The number given last, as the snapshot shows it that the body was exported from."""
    range_from: str = ""
    range_to: str = ""
    """Which part of the request's deep path it is; empty is an open end."""
    fault: Permanent | None = None
    """Why the body can't go out. Told under the slot alone: a repeated request needs no body."""

    @property
    def key(self) -> str:
        """The blob's key."""
        return package_key(self.package_id)


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """What a caller asks for; the paths are valid, nothing else is known of them."""

    action: Action
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    caller: str
    roots: tuple[str, ...]
    idempotency_key: str | None = None
    traceparent: str = ""
    producer: Number | None = None
    """Its number, when it comes from a replayable source."""
    only_if_absent: bool = False
    """Refuse a DELETE of what the author has: it repeats an earlier one, which may be overtaken."""
    prepared: PreparedBody | None = None
    """The body of an ADD of one deep path, when nothing is to be exported for it."""

    def fingerprint(self) -> bytes:
        """Return a digest that two requests share exactly when they ask for the same."""
        asked = [self.action.value, self.paths, self.deep_paths]
        return hashlib.sha256(json.dumps(asked).encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body that went to the blob store; it is remembered for the cleanup (R21)."""

    key: str
    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A package that lacks only its number."""

    message: PackageMessage
    traceparent: str
    stored: StoredBody | None = None
    producer: Number | None = None


class Packer:
    """Exports requests of one publisher agent."""

    def __init__(self, blobs: BlobStore, agent: str, instance: str, clock: Clock) -> None:
        self._blobs, self.agent, self._instance, self._clock = blobs, agent, instance, clock
        self._random = random.Random()  # noqa: S311 - an id is to be unique, not secret

    def new_package_id(self) -> str:
        """Return an id that nobody has."""
        return make_package_id(self._clock.wall_ms(), self._random.getrandbits(RANDOM_BITS))

    def draft(self, connection: Connection, request: DistributionRequest, package_id: str) -> Draft:
        """Export `request` from the transaction's snapshot and with its role (R6, R7).

        Raises what `packages.build.export`, `packages.build.require_absent` and
        `packages.body.pack` raise.
        """
        if request.prepared is not None:
            return self._prepared(request, request.prepared)
        nodes = export(connection, request.action, request.paths, request.deep_paths, request.roots)
        if request.only_if_absent and request.action is Action.DELETE:
            require_absent(connection, request.paths, request.deep_paths)
        entry = self._entry(request, package_id)
        if request.action is not Action.ADD:
            return Draft(self._message(entry), request.traceparent, None, request.producer)
        packed = pack(nodes, package_id, self._blobs)
        entry = replace(entry, body_length=packed.length, node_count=packed.node_count)
        message = replace(self._message(entry), body=packed.body)
        stored = None
        if packed.stored_key is not None:
            stored = StoredBody(packed.stored_key, packed.length, packed.body.sha256.hex())
        return Draft(message, request.traceparent, stored, request.producer)

    def _prepared(self, request: DistributionRequest, body: PreparedBody) -> Draft:
        entry = replace(
            self._entry(request, body.package_id),
            body_length=body.length,
            node_count=body.node_count,
            accepted_ms=self._clock.wall_ms(),
            range_from=body.range_from,
            range_to=body.range_to,
        )
        message = replace(
            self._message(entry),
            body=PackageBody(bytes.fromhex(body.sha256), body.content_length, reference=body.key),
            package_type=PART_TYPE if body.range_from or body.range_to else PACKAGE_TYPE,
        )
        stored = StoredBody(body.key, body.length, body.sha256)
        return Draft(message, request.traceparent, stored, request.producer)

    def _entry(self, request: DistributionRequest, package_id: str) -> PackageEntry:
        return PackageEntry(
            package_id=package_id,
            publisher_agent=self.agent,
            action=request.action,
            paths=request.paths,
            deep_paths=request.deep_paths,
            user=request.caller,
            accepted_ms=int(package_id.split("-")[1]),
        )

    def _message(self, entry: PackageEntry) -> PackageMessage:
        return PackageMessage(entry, publisher_instance=self._instance)
