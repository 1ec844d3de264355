"""What a package may cost, and the two ways in which one is refused (R30)."""

from dataclasses import dataclass

from packhorse.content.json_limits import MAX_PROPERTIES_BYTES
from packhorse.errors import Permanent

INLINE_BYTES = 819_200
"""Largest body that travels inside the record; a larger one goes through the blob store (R7)."""

PACKAGE_TYPE = "packhorse/1"
"""A package whose deep paths stand for their whole subtrees."""

PART_TYPE = "packhorse/2"
"""The same body format, of a part of a subtree; a build that knows no parts refuses it (R14)."""

TARGETED_TYPE = "packhorse/3"
"""Either of them, for named subscribers; a build that would take it for everybody's refuses it."""


class PackageCorrupt(Permanent):
    """The body is not what the package's digest, lengths or format promise."""


class PackageRefused(Permanent):
    """The package is whole, but asks for more than this repository allows."""


@dataclass(frozen=True, slots=True)
class PackageLimits:
    """Bounds of one package, the same where it is built and where it is imported."""

    content_bytes: int = 64 * 1024**3
    inline_ratio: int = 100
    inline_free_bytes: int = 1024**2
    """What an inline body may unpack to: so many times its size as stored, and so many bytes."""
    properties_bytes: int = MAX_PROPERTIES_BYTES
    """Of one node, as the database writes them; the content API allows no more."""
    node_bytes: int = 16 * 1024**2
    nodes: int = 50_000_000
    binaries: int = 1_000
    depth: int = 250
    name_bytes: int = 1_024
    """Of a type, a binary's name or a media type."""

    def most_inline(self, stored: int) -> int:
        """Return how many bytes an inline body of `stored` bytes may unpack to."""
        return self.inline_ratio * stored + self.inline_free_bytes


LIMITS = PackageLimits()
