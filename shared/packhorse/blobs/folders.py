"""The folders of a filesystem blob store, held open: nothing in them leads anywhere else.

    <root>/incoming/<random>                           files that are being written
    <root>/incoming/<kind>.<2 hex>.<name>.<random>     blobs that are being removed
    <root>/binaries|packages|snapshots/<2 hex>/<name>  the blobs

Every name is opened through its folder's descriptor and links are not followed.
"""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from packhorse.blobs.api import BlobCorrupt, BlobStoreUnavailable, StoredBlob

KINDS = ("binaries", "packages", "snapshots")
SHARDS = [f"{number:02x}" for number in range(256)]

_INCOMING = "incoming"
_TAKEN_AWAY = re.compile(rf"({'|'.join(KINDS)})\.([0-9a-f]{{2}})\.([0-9A-Za-z-]+)\.[0-9a-f]{{32}}")
_ABANDONED_S = 24 * 3600
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the system's errors into the store's."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BlobCorrupt("a link lies where a blob should; remove it") from error
        hint = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise BlobStoreUnavailable(f"the blob folder fails: {error.strerror}{hint}") from error


class Folders:
    """The open folders. Its methods raise OSError; see `translated`."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._incoming = self._open_folder(_INCOMING)
        self._kinds = {kind: self._open_folder(kind) for kind in KINDS}
        self._closing = finalize(self, _close, self.root, self._incoming, *self._kinds.values())
        for folder in self._kinds.values():
            _make_shards(folder)
        os.fsync(self.root)
        self._clear_up()

    def close(self) -> None:
        """Close the folders, which else are closed when nobody refers to this any more."""
        self._closing()

    def create(self) -> tuple[str, int]:
        """Open a new file aside, for writing; returns its name and descriptor."""
        name = secrets.token_hex(16)
        return name, os.open(name, _WRITE, 0o600, dir_fd=self._incoming)

    def discard(self, name: str) -> None:
        """Remove a name aside; a published file keeps its other name."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._incoming)

    def publish(self, name: str, key: str, *, flush: bool) -> bool:
        """Name the file `key`, durably when `flush`; false when the key was there already.

        A binary that was there is renewed.
        """
        with self.shard(key) as (shard, target):
            created = self._link(name, shard, target)
            while not created and key.startswith("binaries/") and not _touch(shard, target):
                created = self._link(name, shard, target)  # it was removed in between
            if flush:  # also when it was there: who linked it may not have come to this yet
                os.fsync(shard)
        return created

    def renew(self, key: str) -> os.stat_result | None:
        """Make the file as young as a new one; None when it is not there (any more)."""
        with self.shard(key) as (shard, name):
            return _touch(shard, name)

    def remove_if(self, key: str, wanted: Callable[[os.stat_result], bool]) -> bool:
        """Remove the file if it is as wanted, or gone; who renews it meanwhile finds it gone.

        Where this is killed half-way, the next who opens the store lays the file back.
        """
        aside = f"{key.replace('/', '.')}.{secrets.token_hex(16)}"
        with self.shard(key) as (shard, name):
            try:
                if not wanted(os.stat(name, dir_fd=shard, follow_symlinks=False)):
                    return False
                os.rename(name, aside, src_dir_fd=shard, dst_dir_fd=self._incoming)
            except FileNotFoundError:
                return True
        try:
            removed = wanted(os.stat(aside, dir_fd=self._incoming, follow_symlinks=False))
        except FileNotFoundError:
            return False  # somebody has opened the store just now
        if removed:
            self.discard(aside)
        else:
            self._lay_back(key, aside)
        return removed

    def _lay_back(self, key: str, aside: str) -> None:
        with self.shard(key) as (shard, name), suppress(FileNotFoundError):
            self._link(aside, shard, name)
            os.fsync(shard)
        self.discard(aside)

    def _link(self, name: str, shard: int, target: str) -> bool:
        try:
            os.link(name, target, src_dir_fd=self._incoming, dst_dir_fd=shard)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Where there are no links a rename does: no key stands for two contents.
            os.replace(name, target, src_dir_fd=self._incoming, dst_dir_fd=shard)
        return True

    def open_blob(self, key: str) -> int:
        """Open a blob for reading; raises `BlobCorrupt` when it is no plain file."""
        with self.shard(key) as (shard, name):
            descriptor = os.open(name, _READ, dir_fd=shard)
        try:
            stored(key, os.fstat(descriptor))
        except BlobCorrupt:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def shard(self, key: str) -> Iterator[tuple[int, str]]:
        """Lend the descriptor of the folder of `key`, and the name in it."""
        kind, shard, name = key.split("/")
        descriptor = os.open(shard, _FOLDER, dir_fd=self._kinds[kind])
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _open_folder(self, name: str) -> int:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.root)
        return os.open(name, _FOLDER, dir_fd=self.root)

    def _clear_up(self) -> None:
        """Lay back what killed removers left, and remove what killed writers did.

        No writer pauses for a day. A remover that is alive loses only its removal.
        """
        oldest = time.time() - _ABANDONED_S
        for name in names_in(self._incoming):
            if taken := _TAKEN_AWAY.fullmatch(name):
                self._lay_back("/".join(taken.groups()), name)
                continue
            with suppress(FileNotFoundError):
                if os.stat(name, dir_fd=self._incoming).st_mtime < oldest:
                    self.discard(name)


def stored(key: str, found: os.stat_result) -> StoredBlob:
    """Return what `found` says of a blob; raises `BlobCorrupt` when it is no plain file."""
    if not stat.S_ISREG(found.st_mode):
        raise BlobCorrupt(f"{key} is no plain file; remove it")
    return StoredBlob(key, found.st_size, found.st_mtime_ns // 1_000_000)


def _touch(shard: int, name: str) -> os.stat_result | None:
    """Give a file the file system's own time; None when it is not there, or no longer."""
    try:
        os.utime(name, dir_fd=shard, follow_symlinks=False)
        # It may have been removed between its being found and its being touched.
        return os.stat(name, dir_fd=shard, follow_symlinks=False)
    except FileNotFoundError:
        return None


def names_in(folder: int) -> list[str]:
    """Return what lies in an open folder, in order."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _make_shards(folder: int) -> None:
    for missing in set(SHARDS) - set(names_in(folder)):
        with suppress(FileExistsError):
            os.mkdir(missing, 0o700, dir_fd=folder)
    os.fsync(folder)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
