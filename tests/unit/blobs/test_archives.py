"""Archives of binaries: which bodies are one, whoever has made them."""

import hashlib
import io
import tarfile

import pytest

from packhorse.blobs.archives import MAX_MEMBERS, BadArchive, packed, unpacked


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def header(kind: bytes, size: int = 0) -> bytes:
    member = tarfile.TarInfo("sha256:" + digest(b""))
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def with_more_sparse_headers() -> bytes:
    """Return the header of a sparse file that says that another one follows."""
    whole = bytearray(header(tarfile.GNUTYPE_SPARSE))
    whole[482] = 1
    whole[148:156] = b" " * 8
    whole[148:156] = b"%06o\0 " % sum(whole)
    return bytes(whole)


def test_what_was_packed_is_unpacked() -> None:
    binaries = {digest(content): content for content in (b"", b"x", bytes(512), b"y" * 513)}
    assert unpacked(packed(binaries)) == binaries
    assert unpacked(packed({})) == {}


@pytest.mark.parametrize(
    "written_as", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_an_archive_may_hold_times_and_owners(written_as: int) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=written_as) as archive:
        member = tarfile.TarInfo("sha256:" + digest(b"abc"))
        member.size, member.mtime, member.uname = 3, 1.5, "ünal"
        archive.addfile(member, io.BytesIO(b"abc"))
    assert unpacked(body.getvalue()) == {digest(b"abc"): b"abc"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE])
def test_r30_an_archive_holds_plain_files_only(kind: bytes) -> None:
    with pytest.raises(BadArchive, match="plain file"):
        unpacked(header(kind) + bytes(1024))


@pytest.mark.parametrize("length", [0, 1, 512, 514])
def test_r30_what_was_cut_off_is_no_archive(length: int) -> None:
    whole = packed({digest(b"abc"): b"abc"})
    with pytest.raises(BadArchive):
        unpacked(whole[:length] + b"xyz")
    with pytest.raises(BadArchive):
        unpacked(whole[:length])


def test_r30_an_archive_has_so_many_members() -> None:
    with pytest.raises(BadArchive, match=str(MAX_MEMBERS)):
        unpacked(packed({digest(b"%d" % one): b"%d" % one for one in range(MAX_MEMBERS + 1)}))


@pytest.mark.parametrize(
    "body",
    [
        header(tarfile.XHDTYPE, 2**20) + b"1" * 2**20,
        header(tarfile.XHDTYPE) * 2_000,
        header(tarfile.GNUTYPE_LONGNAME, 1) + b"x" * 512 * 1_000,
        header(tarfile.GNUTYPE_LONGNAME) * 1_000,
        with_more_sparse_headers(),
        header(tarfile.REGTYPE, -512),
        header(tarfile.XHDTYPE, -512),
    ],
    ids=["digits", "attributes", "long-name", "long-names", "sparse", "negative", "back"],
)
def test_r30_an_archive_costs_no_more_than_its_length(body: bytes) -> None:
    with pytest.raises(BadArchive):
        unpacked(body)
