"""One request to one package: the message that goes out for it."""

import random
from collections.abc import Iterator
from dataclasses import replace

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.bookkeeping.stored_packages import NewStoredPackage
from packhorse.clock import Clock
from packhorse.content.node import Node
from packhorse.packages.body import pack
from packhorse.packages.build import ShallowReader, export, require_absent
from packhorse.packages.limits import LIMITS, PackageLimits, PackageRefused
from packhorse.packages.package_id import RANDOM_BITS, make_package_id
from packhorse.packages.scope import type_of
from packhorse.wire.actions import exports
from packhorse.wire.messages import AWAITED, PackageBody, PackageEntry, PackageMessage
from packhorse_services.publisher.outbox.request import DistributionRequest, Draft, PreparedBody


class Packer:
    """Exports requests of one publisher agent."""

    def __init__(
        self,
        blobs: BlobStore,
        agent: str,
        instance: str,
        clock: Clock,
        limits: PackageLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._blobs, self.agent, self._instance, self._clock = blobs, agent, instance, clock
        self._random = random.Random()  # noqa: S311 - an id is to be unique, not secret
        self.steps = 0
        """How many nodes were exported so far; read by whoever wants to know that it goes on."""

    def new_package_id(self) -> str:
        """Return an id that nobody has."""
        return make_package_id(self._clock.wall_ms(), self._random.getrandbits(RANDOM_BITS))

    def draft(
        self,
        connection: Connection,
        request: DistributionRequest,
        package_id: str,
        reader: ShallowReader | None = None,
    ) -> Draft:
        """Export `request` from the transaction's snapshot and with its role (R6, R7).

        `reader` is one of that transaction, for several requests. Raises what
        `packages.build.export`, `packages.build.require_absent` and `packages.body.pack` raise.
        """
        if request.prepared is not None:
            return self._prepared(request, request.prepared)
        requested = (request.action, request.paths, request.deep_paths, request.roots)
        nodes = export(connection, *requested, reader=reader)
        if request.only_if_absent:
            require_absent(connection, request.paths, request.deep_paths)
        if not exports(request.action):
            message = self._message(self._entry(request, package_id), request)
            return Draft(message, request.traceparent, None, request.producer)
        return self._packed(request, package_id, nodes)

    def _packed(
        self, request: DistributionRequest, package_id: str, nodes: Iterator[Node]
    ) -> Draft:
        packed = pack(self._counted(nodes), package_id, self._blobs, self._limits)
        entry = self._entry(request, package_id, packed.length, packed.node_count)
        message = self._message(entry, request, packed.body)
        stored = None
        if packed.stored_key is not None:
            digest = packed.body.sha256.hex()
            stored = NewStoredPackage(packed.stored_key, package_id, packed.length, digest)
        return Draft(message, request.traceparent, stored, request.producer)

    def _prepared(self, request: DistributionRequest, body: PreparedBody) -> Draft:
        if body.content_length > self._limits.content_bytes:
            raise PackageRefused(
                f"the package unpacks to {body.content_length} bytes; "
                f"{self._limits.content_bytes} are allowed here (PACKHORSE_MAX_PACKAGE_BYTES)"
            )
        entry = replace(
            self._entry(request, body.package_id),
            body_length=body.length,
            node_count=body.node_count,
            accepted_ms=self._clock.wall_ms(),
            range_from=body.range_from,
            range_to=body.range_to,
        )
        carried = PackageBody(bytes.fromhex(body.sha256), body.content_length, reference=body.key)
        message = self._message(entry, request, carried)
        stored = NewStoredPackage(body.key, body.package_id, body.length, body.sha256)
        return Draft(message, request.traceparent, stored, request.producer)

    def _counted(self, nodes: Iterator[Node]) -> Iterator[Node]:
        for node in nodes:
            self.steps += 1
            yield node

    def _entry(
        self, request: DistributionRequest, package_id: str, length: int = 0, nodes: int = 0
    ) -> PackageEntry:
        return PackageEntry(
            package_id=package_id,
            publisher_agent=self.agent,
            action=request.action,
            paths=request.paths,
            deep_paths=request.deep_paths,
            user=request.caller,
            body_length=length,
            node_count=nodes,
            accepted_ms=int(package_id.split("-")[1]),
            targets=request.targets,
        )

    def _message(
        self, entry: PackageEntry, request: DistributionRequest, body: PackageBody | None = None
    ) -> PackageMessage:
        metadata = {AWAITED: "true"} if request.awaited else {}
        return PackageMessage(entry, body, self._instance, type_of(entry), metadata)
