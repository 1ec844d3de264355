"""Records of the package topic as a subscription sees them.

Its own packages, and others to pass over.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from packhorse.messaging.api import Record
from packhorse.packages.body import unpack_ahead
from packhorse.packages.limits import PackageRefused
from packhorse.wire.messages import PackageEntry, PackageMessage
from packhorse.wire.package_codec import (
    AGENT_HEADER,
    PACKAGE_ID_HEADER,
    decode_entry,
    decode_package,
    has_digest,
    has_entry,
)
from packhorse.wire.record import Undecodable
from packhorse_services.subscriber.journal.failures import printable

logger = logging.getLogger(__name__)

_ID_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the log: an offset and the id of the package there."""

    offset: int
    package_id: str


@dataclass(slots=True)
class Arrival:
    """One record; `record` is None for a package of another agent, whose body is dropped.

    `message` is what was decoded ahead of the import, and `kept` the bytes that it takes; whoever
    imports decodes what was not.
    """

    mark: Mark
    record: Record | None
    message: PackageMessage | None = field(default=None, repr=False, compare=False)
    kept: int = field(default=0, repr=False, compare=False)

    @property
    def offset(self) -> int:
        """Where it is in the log."""
        return self.mark.offset

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return len(self.record.value) if self.record else 0

    @property
    def memory(self) -> int:
        """Bytes that it holds in memory, about: of the record, and of what was decoded ahead."""
        return self.size + self.kept


def arrival_of(record: Record, agent: str) -> Arrival:
    """Return the record as the subscription of `agent` sees it, without decoding its body.

    One that does not say whose it is, or not reliably, may be anybody's: every subscription fails
    at it.
    """
    found = record.headers.get(AGENT_HEADER)
    own = found is None or found == agent.encode() or not has_digest(record.headers, record.value)
    return Arrival(mark_of(record), record if own else None)


def mark_of(record: Record) -> Mark:
    """Return where a record is, with the id that its header gives, made safe to store."""
    return Mark(record.offset, package_id_of(record.headers))


def package_id_of(headers: Mapping[str, bytes]) -> str:
    """Return the package id of a record, or an empty text."""
    raw = headers.get(PACKAGE_ID_HEADER, b"")
    return printable(raw[:_ID_CHARACTERS].decode("utf-8", "replace"), _ID_CHARACTERS)


def package_of(arrival: Arrival, agent: str) -> PackageMessage:
    """Decode a package of this subscription. Raises `Undecodable`; `PackageRefused` if forged."""
    if arrival.message is not None:
        return arrival.message
    record = arrival.record
    if record is None:
        raise PackageRefused("a package of another agent is none of this subscription")
    if record.damage:
        raise Undecodable(record.damage)
    message = decode_package(record.headers, record.value)
    entry = message.entry
    if (
        entry.publisher_agent != agent
        or entry.package_id != arrival.mark.package_id
        or not has_entry(record.headers, record.value)
    ):
        raise PackageRefused(
            "the record's headers name another package than its body, or say something else of it"
        )
    return message


def decode_ahead(arrival: Arrival, agent: str) -> None:
    """Decode a package and unpack it, as far as that needs no blob.

    Whatever goes wrong is left to the one who imports it: there it counts as an attempt (R14).
    """
    if arrival.record is None:
        return
    try:
        message = package_of(arrival, agent)
        arrival.kept = unpack_ahead(message) + len(arrival.record.value)
        arrival.message = message
    except Exception:
        logger.debug("a package can't be decoded ahead", exc_info=True)


def entry_of(arrival: Arrival) -> PackageEntry | None:
    """Return what the headers say of a package, or None when that is unreadable."""
    try:
        return decode_entry(arrival.record.headers) if arrival.record else None
    except Undecodable:
        return None
