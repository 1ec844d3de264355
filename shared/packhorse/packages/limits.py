"""What a package may cost, and the two ways in which one is refused (R30, M4)."""

from dataclasses import dataclass

from packhorse.errors import Permanent

INLINE_BYTES = 819_200
"""Largest body that travels inside the record; a larger one goes through the blob store (R7)."""

PACKAGE_TYPE = "packhorse/1"
"""A package whose deep paths stand for their whole subtrees."""

PART_TYPE = "packhorse/2"
"""The same body format, of a part of a subtree; a build that knows no parts refuses it (R14)."""


class PackageCorrupt(Permanent):
    """The body is not what the package's digest, lengths or format promise."""


class PackageRefused(Permanent):
    """The package is whole, but asks for more than this repository allows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one package, the same where it is built and where it is imported."""

    content_bytes: int = 64 * 1024**3
    node_bytes: int = 16 * 1024**2
    nodes: int = 50_000_000
    binaries: int = 1_000
    depth: int = 250
    name_bytes: int = 1_024
    """Of a type, a binary's name or a media type."""


LIMITS = Limits()
