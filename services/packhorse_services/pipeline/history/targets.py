"""Packages for named subscribers: whose content they are part of (R35)."""

from collections.abc import Mapping

from packhorse.wire.package_codec import ENTRY_HEADER, decode_entry
from packhorse.wire.record import Undecodable

TAG = b"\xf2\x01"
"""What the bytes of an entry with targets contain; those of few others do."""


def targets_of(headers: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the subscribers that a package is for by its `entry` header; none: all, or unreadable.

    Costs next to nothing for a package that is for all.
    """
    if TAG not in headers.get(ENTRY_HEADER, b""):
        return ()
    try:
        return decode_entry(headers).targets
    except Undecodable:
        return ()


def is_for(headers: Mapping[str, bytes], subscriber: str) -> bool:
    """Return whether a package is for this subscriber by its `entry` header."""
    targets = targets_of(headers)
    return not targets or subscriber in targets
