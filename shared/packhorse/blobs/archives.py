"""Many small binaries in one body: a tar archive whose members are named by their digests."""

import hashlib
import io
import tarfile
from collections.abc import Mapping

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
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:") as archive:
            for member in archive:
                sha256 = _checked_name(member, len(body))
                file = archive.extractfile(member)
                found[sha256] = file.read() if file else b""
                if len(found) > MAX_MEMBERS:
                    raise BadArchive(f"the archive has more than {MAX_MEMBERS} members")
    except (tarfile.TarError, ValueError, OSError, EOFError) as error:
        raise BadArchive(f"the body is no tar archive: {error}") from error
    for sha256, content in found.items():
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BadArchive(f"the member {_KIND}{sha256} holds other bytes than its name says")
    return found


def _checked_name(member: tarfile.TarInfo, most: int) -> str:
    """Return the SHA-256 that a member is named by; it can't unfold to more than it takes."""
    plain = member.isreg() and not member.issparse() and 0 <= member.size <= most
    kind, sha256 = member.name[: len(_KIND)], member.name[len(_KIND) :]
    if not plain or kind != _KIND or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise BadArchive("each member must be a plain file named sha256: and 64 hex digits")
    return sha256
