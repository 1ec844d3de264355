"""What can be imported: a folder or a zip archive, as entries whose names are not trusted."""

import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from packhorse.errors import Permanent

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNFOLDING = 200
_UNFOLDING_ALWAYS = 256 * 1024**2


class NotImportable(Permanent):
    """The entry, or the whole source, can't be imported; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder of a source; `name` is relative, with slashes, as the source has it."""

    name: str
    size: int = 0
    open: Callable[[], AbstractContextManager[BinaryIO]] | None = None
    """Opens a file's bytes; None for a folder. Raises OSError or `NotImportable`."""

    problem: str = ""
    """Why the entry can't be imported, or nothing."""

    skipped: bool = False
    """Whether it is a link or a device, which stay behind on purpose."""


class Source(Protocol):
    """Entries in any order."""

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, never all of them in memory."""
        ...

    def count(self) -> int:
        """Return how many entries there are, about."""
        ...


def open_source(path: Path) -> Source:
    """Return the folder or the archive at `path`. Raises `NotImportable`."""
    if path.is_dir():
        return Folder(path)
    try:
        return Archive(zipfile.ZipFile(path), path.stat().st_size)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise NotImportable(f"{path} is neither a folder nor a zip archive: {error}") from error


class Folder:
    """A folder of the file system; symbolic links are not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> Iterator[Entry]:
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
                            yield Entry(name)
                        else:
                            yield self._file(name, entry)
            except OSError as error:
                yield Entry(folder or ".", problem=f"can't be listed: {error.strerror}")

    def count(self) -> int:
        """Walk once more."""
        return sum(1 for _ in self.entries())

    def _file(self, name: str, entry: os.DirEntry[str]) -> Entry:
        if not entry.is_file(follow_symlinks=False):
            return Entry(name, skipped=True)
        size = entry.stat(follow_symlinks=False).st_size
        return Entry(name, size, lambda: _open_plain(entry.path))


class Archive:
    """A zip archive, from which no more comes than a sane one of its size holds (M9)."""

    def __init__(self, archive: zipfile.ZipFile, length: int) -> None:
        self._archive = archive
        self._left = max(_UNFOLDING_ALWAYS, _UNFOLDING * length)

    def entries(self) -> Iterator[Entry]:
        """Go through the archive's directory."""
        for info in self._archive.infolist():
            yield self._entry(info)

    def count(self) -> int:
        """Ask the archive's directory."""
        return len(self._archive.infolist())

    def _entry(self, info: zipfile.ZipInfo) -> Entry:
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
            return Entry(name, problem=problem)
        if info.is_dir():
            return Entry(name)
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            return Entry(name, skipped=True)
        return Entry(name, info.file_size, lambda: _open_member(self._archive, info))


def _open_plain(path: str) -> BinaryIO:
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotImportable("it is no plain file any more")
    return open(descriptor, "rb", buffering=0)  # noqa: PTH123 - the caller closes it


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    try:
        return archive.open(info)  # type: ignore[return-value]
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise NotImportable(f"the archive is damaged here: {error}") from error
