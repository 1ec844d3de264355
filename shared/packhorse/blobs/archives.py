"""Many small binaries in one body: a tar archive whose members are named by their digests."""

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping

from packhorse.errors import Permanent

MEDIA_TYPE = "application/x-tar"
MAX_MEMBERS = 1_000
MAX_BYTES = 16 * 1024 * 1024
"""Of the whole archive, which lies in memory."""

_KIND = "sha256:"


class BadArchive(Permanent):
    """The body is no archive of binaries; the text says why."""


def packed(binaries: Mapping[str, bytes]) -> bytes:
    """Return an archive of binaries by their SHA-256."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for sha256, content in binaries.items():
            member = tarfile.TarInfo(_KIND + sha256)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return body.getvalue()


def unpacked(body: bytes) -> dict[str, bytes]:
    """Return the binaries of an archive by their SHA-256, which they have (R30).

    Raises `BadArchive`.
    """
    found: dict[str, bytes] = {}
    for member, content in _members(body):
        sha256 = _checked_name(member)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BadArchive(f"the member {_KIND}{sha256} holds other bytes than its name says")
        found[sha256] = content
        if len(found) > MAX_MEMBERS:
            raise BadArchive(f"the archive has more than {MAX_MEMBERS} members")
    return found


def _members(body: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Go from header to header, up to the empty one that ends an archive.

    Not by `tarfile.open`: what it spends on extended headers has no bound. They hold times and
    owners, which `tar --format=posix` writes, and are passed over.
    """
    end = 0
    while (header := body[end : end + tarfile.BLOCKSIZE]) != bytes(tarfile.BLOCKSIZE):
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BadArchive(f"the body is no tar archive: {error}") from error
        start = end + tarfile.BLOCKSIZE
        if not 0 <= member.size <= len(body) - start:
            raise BadArchive(f"a member of {member.size} bytes does not fit in the archive")
        if member.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE):
            yield member, body[start : start + member.size]
        end = start + member.size + -member.size % tarfile.BLOCKSIZE


def _checked_name(member: tarfile.TarInfo) -> str:
    """Return the SHA-256 that a member is named by."""
    plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
    kind, sha256 = member.name[: len(_KIND)], member.name[len(_KIND) :]
    if not plain or kind != _KIND or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise BadArchive("each member must be a plain file named sha256: and 64 hex digits")
    return sha256
