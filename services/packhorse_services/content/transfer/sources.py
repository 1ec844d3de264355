"""What can be imported: a folder or a zip archive, as entries whose names are not trusted.

A file's bytes are read once to know them, and again where they are large.
"""

import hashlib
import lzma
import mimetypes
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from packhorse.blobs.api import CHUNK_BYTES, BlobCorrupt
from packhorse.errors import Permanent

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINK = "it is a symbolic link, and links are not followed"
_DEVICE = "it is neither a file nor a folder"
_UNFOLDING = 200
_UNFOLDING_ALWAYS = 256 * 1024**2
SMALL_BYTES = 256 * 1024
"""A file of up to so many bytes is read into memory."""


class NotImportable(Permanent):
    """The entry, or the whole source, can't be imported; the text says why."""


_DAMAGED = (zipfile.BadZipFile, NotImplementedError, ValueError)
"""What `zipfile` says of an archive, of how it is compressed, and of names that are no UTF-8."""
UNREADABLE = (
    *(OSError, NotImportable, BlobCorrupt),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
)
"""What keeps one file from being read, and no other."""


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A file or a folder of a source; `name` is relative, with slashes, as the source has it."""

    name: str
    size: int = 0
    open: Callable[[], AbstractContextManager[BinaryIO]] | None = None
    """Opens a file's bytes; None for a folder. Raises OSError or `NotImportable`."""

    problem: str = ""
    """Why the entry can't be imported, or nothing."""

    skipped: str = ""
    """Why the entry stays behind on purpose, or nothing."""


class ContentSource(Protocol):
    """Entries in any order."""

    def entries(self) -> Iterator[SourceEntry]:
        """Yield all entries, never all of them in memory."""
        ...

    def count(self) -> int:
        """Return how many entries there are, about."""
        ...

    def has_file(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        ...


def open_source(path: Path) -> ContentSource:
    """Return the folder or the archive at `path`. Raises `NotImportable`."""
    if path.is_dir():
        return FolderSource(path)
    try:
        return ZipSource(zipfile.ZipFile(path), path.stat().st_size)
    except (OSError, *_DAMAGED) as error:
        raise NotImportable(
            f"{path} is neither a folder nor a zip archive: {error}; put a file into a folder, and "
            "import that"
        ) from error


class FolderSource:
    """A folder of the file system; symbolic links are not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> Iterator[SourceEntry]:
        """Walk one folder after the other."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self._root / folder) as found:
                    for entry in found:
                        name = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(name)
                            yield SourceEntry(name)
                        else:
                            yield self._file(name, entry)
            except OSError as error:
                yield SourceEntry(folder or ".", problem=f"can't be listed: {error.strerror}")

    def count(self) -> int:
        """Walk once more."""
        return sum(1 for _ in self.entries())

    def has_file(self, name: str) -> bool:
        """Look for it."""
        return (self._root / name).is_file()

    def _file(self, name: str, entry: os.DirEntry[str]) -> SourceEntry:
        if not entry.is_file(follow_symlinks=False):
            return SourceEntry(name, skipped=_LINK if entry.is_symlink() else _DEVICE)
        try:
            size = entry.stat(follow_symlinks=False).st_size
        except OSError as error:
            return SourceEntry(name, problem=f"can't be read: {error.strerror}")
        return SourceEntry(name, size, lambda: _open_plain(entry.path))


class ZipSource:
    """A zip archive, from which no more comes than a sane one of its size holds."""

    def __init__(self, archive: zipfile.ZipFile, length: int) -> None:
        self._archive = archive
        self._left = max(_UNFOLDING_ALWAYS, _UNFOLDING * length)

    def entries(self) -> Iterator[SourceEntry]:
        """Go through the archive's directory."""
        for info in self._archive.infolist():
            yield self._entry(info)

    def count(self) -> int:
        """Ask the archive's directory."""
        return len(self._archive.infolist())

    def has_file(self, name: str) -> bool:
        """Ask the archive's directory."""
        return name in self._archive.NameToInfo

    def _entry(self, info: zipfile.ZipInfo) -> SourceEntry:
        name = info.filename.removesuffix("/")
        self._left -= info.file_size  # the library gives no byte more than this
        problem = ""
        if self._left < 0:
            problem = f"the archive unfolds to more than {_UNFOLDING} times its size"
        elif "\\" in name or info.orig_filename != info.filename:
            problem = "the name holds a backslash or U+0000"
        elif info.flag_bits & 1:
            problem = "it is encrypted"
        mode = info.external_attr >> 16
        if problem:
            return SourceEntry(name, problem=problem)
        if info.is_dir():
            return SourceEntry(name)
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            return SourceEntry(name, skipped=_LINK if stat.S_ISLNK(mode) else _DEVICE)
        return SourceEntry(name, info.file_size, lambda: _open_member(self._archive, info))


def _open_plain(path: str) -> BinaryIO:
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotImportable("it is no plain file any more")
    return open(descriptor, "rb", buffering=0)  # noqa: PTH123 - the caller closes it


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    try:
        return archive.open(info)  # type: ignore[return-value]
    except _DAMAGED as error:
        raise NotImportable(f"the archive is damaged here: {error}") from error


def media_type_of(path: str) -> str:
    """Return what a file's name says of its bytes."""
    return mimetypes.guess_type(path, strict=False)[0] or "application/octet-stream"


def examined(entry: SourceEntry) -> tuple[bytes | None, str, int]:
    """Return a small file's bytes, or None, and digest and length of any. Raises `UNREADABLE`."""
    assert entry.open is not None  # noqa: S101 - batches hold folders apart
    with entry.open() as file:
        content = _read_small(file)
        sha256, length = _digest(content, file)
    return (content if len(content) == length else None), sha256, length


def _read_small(file: BinaryIO) -> bytes:
    """Return the file's beginning, which is all of a small file."""
    parts = []
    left = SMALL_BYTES
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _digest(content: bytes, rest: BinaryIO) -> tuple[str, int]:
    """Return digest and length of what was read and of what follows."""
    digest, length = hashlib.sha256(content), len(content)
    for chunk in chunks_of(rest):
        digest.update(chunk)
        length += len(chunk)
    return digest.hexdigest(), length


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """Return the rest of a file, in chunks."""
    return iter(lambda: file.read(CHUNK_BYTES), b"")
