"""Bodies on the wire: plain or gzip JSON, or gzip that is encrypted; bounded both ways (R30)."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from packhorse.errors import Permanent
from packhorse.topology.announcements import MAX_BYTES, Announcement, encode
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.sealing import MEDIA_TYPE as SEALED
from packhorse.topology.sealing import seal, unseal

JSON = "application/json"

MAX_WIRE_BYTES = 512 * 1024
"""Of a body as it is sent; JSON that is longer goes only if it can be compressed to this."""

_GZIP = 16 + zlib.MAX_WBITS
_WORTH_IT = 1024
_OVERHEAD = 1024  # what gzip and encryption may add to what can't be compressed


class TooLarge(Permanent):
    """A body with more bytes than are taken, before or behind its compression."""


@dataclass(frozen=True, slots=True)
class Seal:
    """How a body is encrypted, and what it is bound to."""

    key: bytes
    place: bytes


@dataclass(frozen=True, slots=True)
class Coded:
    """A body and the headers that say how to read it."""

    headers: dict[str, str]
    body: bytes


def coded(announcement: Announcement, *, gzip: bool, sealing: Seal | None) -> Coded:
    """Return what to send; clusters that make it too large are left out, the farthest first."""
    found = _coded(encode(announcement), gzip, sealing)
    if len(found.body) > MAX_WIRE_BYTES:
        found = _coded(encode(announcement, MAX_WIRE_BYTES - _OVERHEAD), gzip, sealing)
    if len(found.body) > MAX_WIRE_BYTES:
        raise TooLarge("the own cluster has too much to announce: fewer or shorter properties")
    return found


def uncoded(headers: Mapping[str, str], body: bytes, sealing: Seal | None) -> bytes:
    """Return the JSON of a body. Raises `Rejected` or `TooLarge`."""
    if (headers.get("content-type") == SEALED) != (sealing is not None):
        raise Rejected(RejectionReason.SEAL, "encryption must be on at both ends, or at none")
    if sealing is not None:
        return _gunzip(unseal(sealing.key, body, sealing.place))
    coding = headers.get("content-encoding", "identity").lower()
    if headers.get("content-type") != JSON or coding not in ("gzip", "identity"):
        raise Rejected(RejectionReason.ANNOUNCEMENT, f"send {JSON}, as it is or as gzip")
    return _gunzip(body) if coding == "gzip" else body


def _coded(plain: bytes, gzip: bool, sealing: Seal | None) -> Coded:
    if sealing is not None:
        return Coded({"content-type": SEALED}, seal(sealing.key, _gzip(plain), sealing.place))
    if gzip and len(plain) > _WORTH_IT:
        return Coded({"content-type": JSON, "content-encoding": "gzip"}, _gzip(plain))
    return Coded({"content-type": JSON}, plain)


def _gzip(plain: bytes) -> bytes:
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(plain) + packer.flush()


def _gunzip(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = unpacker.decompress(packed, MAX_BYTES + 1)
    except zlib.error:
        raise Rejected(RejectionReason.ANNOUNCEMENT, "the body is no gzip") from None
    if len(plain) > MAX_BYTES:
        raise TooLarge(f"an announcement has at most {MAX_BYTES} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise Rejected(RejectionReason.ANNOUNCEMENT, "the body is not one whole gzip")
    return plain
