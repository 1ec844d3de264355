"""What content is exported into: a folder, or a ZIP file."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from packhorse_services.content.transfer.refusals import TargetTaken, Unwritable

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEVEL = 1
_LARGE = 1024**3


class ContentTarget(Protocol):
    """Takes folders and files by the names on the way to them."""

    def folder(self, names: Sequence[str]) -> None:
        """Make a folder; without names it is the target itself. Raises OSError, ValueError."""
        ...

    def file(self, names: Sequence[str], length: int, chunks: Iterable[bytes]) -> None:
        """Write a file, whole or not at all. Raises OSError, ValueError, what `chunks` raises."""
        ...


@contextmanager
def open_target(path: Path) -> Iterator[ContentTarget]:
    """Lend a new ZIP file for a name that ends so, else a folder.

    It is made with its first entry, and when the block ends with an error a ZIP file is removed.
    Raises `TargetTaken` for what is there already, and `Unwritable`.
    """
    if path.suffix.lower() == ".zip":
        with _Zip.opened(path) as target:
            yield target
    else:
        yield _Folder(path)


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            taken = root.exists() and any(root.iterdir())
        except OSError as error:
            raise Unwritable(f"{root} can't be written: {error.strerror}") from error
        if taken:
            raise TargetTaken(f"{root} is not empty; name a new folder")

    def folder(self, names: Sequence[str]) -> None:
        self._make_root()
        self._root.joinpath(*names).mkdir(exist_ok=not names)

    def file(self, names: Sequence[str], _length: int, chunks: Iterable[bytes]) -> None:
        self._make_root()
        target = self._root.joinpath(*names)
        descriptor = os.open(target, _CREATE, 0o666)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.writelines(chunks)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def _make_root(self) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unwritable(f"{self._root} can't be written: {error.strerror}") from error


class _Zip:
    def __init__(self, archive: zipfile.ZipFile, beside: Path) -> None:
        self._archive, self._beside = archive, beside
        self._folders = {""}

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["_Zip"]:
        if path.exists():
            raise TargetTaken(f"{path} is there already; name a new file")
        draft = path.with_name(f".{path.name}.part")
        if draft.is_symlink() or draft.exists():
            raise TargetTaken(
                f"{draft} is there: an export is under way, or one was killed; remove it then"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            archive = zipfile.ZipFile(draft, "x", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        except OSError as error:
            raise Unwritable(f"{path} can't be written: {error.strerror}") from error
        try:
            with archive:
                yield cls(archive, path.parent)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def folder(self, names: Sequence[str]) -> None:
        name = "/".join(names)
        if name:
            self._check_above(names)
            self._folders.add(name)
            self._archive.writestr(self._entry(f"{name}/"), b"")

    def file(self, names: Sequence[str], length: int, chunks: Iterable[bytes]) -> None:
        self._check_above(names)
        content = b"".join(chunks) if length <= _LARGE // 1024 else None
        entry = self._entry("/".join(names))
        if content is not None:
            self._archive.writestr(entry, content, zipfile.ZIP_DEFLATED, _LEVEL)
            return
        with tempfile.TemporaryFile(dir=self._beside) as whole:
            whole.writelines(chunks)  # what breaks off leaves no half of a file in the archive
            whole.seek(0)
            with self._archive.open(entry, "w", force_zip64=length > _LARGE) as file:
                shutil.copyfileobj(whole, file)

    def _check_above(self, names: Sequence[str]) -> None:
        """Keep a file from being a folder too, as every file system does."""
        if "/".join(names[:-1]) not in self._folders:
            raise NotADirectoryError("what lies above it is no folder")

    @staticmethod
    def _entry(name: str) -> zipfile.ZipInfo:
        entry = zipfile.ZipInfo(name)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o40755 if name.endswith("/") else 0o100644) << 16
        return entry
