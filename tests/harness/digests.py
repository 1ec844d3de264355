"""Digests of records that nobody encoded, as whoever can write to the journal makes them."""

from collections.abc import Mapping

from packhorse.wire import package_codec


def digested(headers: Mapping[str, bytes], value: bytes) -> dict[str, bytes]:
    """Return headers of a package with the digest that they and the value have (R32)."""
    return {**headers, package_codec.DIGEST_HEADER: package_codec._digest(headers, value)}
