"""A request on its way to a package: what is asked for, its draft, what it has led to."""

import hashlib
import json
from concurrent.futures import Future
from dataclasses import dataclass, field

from packhorse.blobs.api import package_key
from packhorse.bookkeeping.stored_packages import NewStoredPackage
from packhorse.errors import Permanent
from packhorse.messaging.numbered import Number
from packhorse.wire.messages import Action, PackageMessage
from packhorse_services.publisher.outbox.append_state import Number as LastNumber


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A body that its caller has exported and put into the blob store (ADR 0018)."""

    package_id: str
    sha256: str
    """64 lower-case hex digits, of the body as stored."""
    length: int
    content_length: int
    node_count: int
    seen: LastNumber
    """The number given last, as the snapshot shows it that the body was exported from."""
    range_from: str = ""
    range_to: str = ""
    """Which part of the request's deep path it is; empty is an open end."""
    fault: Permanent | None = None
    """Why the body can't go out. Used under the lock alone: a repeated request needs no body."""

    @property
    def key(self) -> str:
        """The blob's key."""
        return package_key(self.package_id)


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """Which version of a release a request sends: no other one, and none twice."""

    release_id: str
    version: int


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """What a caller asks for; the paths are valid, nothing else is known of them."""

    action: Action
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    caller: str
    roots: tuple[str, ...]
    targets: tuple[str, ...] = ()
    """The subscribers that it is for; empty: all."""
    idempotency_key: str | None = None
    traceparent: str = ""
    producer: Number | None = None
    """Its number, when it comes from a replayable source."""
    only_if_absent: bool = False
    """Refuse a DELETE of what the author has: what it was asked for by may be overtaken."""
    awaited: bool = False
    """Whether the caller waits for the subscribers, which then report at once what they have."""
    prepared: PreparedBody | None = None
    """The body of an ADD of one deep path, when nothing is to be exported for it."""
    release: ReleaseVersion | None = None
    """What it is the sending of, when it was asked for earlier."""

    def fingerprint(self) -> bytes:
        """Return a digest that two requests share exactly when they ask for the same."""
        requested: list[object] = [self.action.value, self.paths, self.deep_paths]
        requested += [self.targets] if self.targets else []
        requested += [True] if self.only_if_absent else []
        return hashlib.sha256(json.dumps(requested).encode()).digest()


@dataclass(frozen=True, slots=True)
class Draft:
    """A package that lacks only its number."""

    message: PackageMessage
    traceparent: str
    stored: NewStoredPackage | None = None
    producer: Number | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a request has led to. `offset` is None while the journal has not confirmed it."""

    package_id: str
    offset: int | None
    repeated: bool = False
    """Whether an earlier request with the same idempotency key made the package."""
    targets: tuple[str, ...] = ()
    """The subscribers that it is for; empty: all."""


@dataclass(eq=False, slots=True)
class Pending:
    """A request on its way. The package id is that of the last try; it may be committed."""

    request: DistributionRequest
    future: Future[Accepted] = field(default_factory=Future)
    package_id: str = ""
    committed: bool = False
    behind: "Pending | None" = None
    """The request before it in its batch, of the same producer; their order is kept."""

    @property
    def refused(self) -> bool:
        """Whether it was given up, or answered with an error."""
        future = self.future
        return future.cancelled() or (future.done() and future.exception() is not None)

    def answer(self, offset: int | None, *, package_id: str = "", repeated: bool = False) -> None:
        """Answer the request, once."""
        if not self.future.done():
            made, targets = package_id or self.package_id, self.request.targets
            self.future.set_result(Accepted(made, offset, repeated, targets))

    def fail(self, error: Exception) -> None:
        """Refuse the request, unless it is answered; a committed one is accepted, without offset.

        Who was told to send it again would have it twice.
        """
        if self.committed:
            self.answer(None)
        if not self.future.done():
            self.future.set_exception(error)
