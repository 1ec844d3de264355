"""Blobs in a folder: written aside, flushed, then linked under their key, never over another."""

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from packhorse.blobs.api import (
    CHUNK_BYTES,
    BlobMissing,
    InvalidBlobKey,
    StoredBlob,
    WrittenBlob,
    check_key,
    promised_digest,
)
from packhorse.blobs.digest import Verified
from packhorse.blobs.folders import KINDS, SHARDS, Folders, names_in, stored, translated

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

AVAILABLE = _syncfs is not None
"""Whether this system can do it; Linux can, and is ten times as fast so as file by file."""


class FilesystemBlobs:
    """A `BlobStore` in one folder, which several processes of one user may share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with translated():
            self._folders = Folders(root)

    def put(self, key: str, chunks: Iterable[bytes]) -> WrittenBlob:
        """Write aside, verify, flush, link."""
        verified = Verified(chunks, sha256=promised_digest(check_key(key)))
        with self._aside() as (name, descriptor):
            for chunk in verified:
                _write(descriptor, chunk)
            with translated():
                os.fsync(descriptor)
                created = self._folders.publish(name, key, flush=True)
        return WrittenBlob(key, verified.length, verified.sha256, created)

    def put_many(self, binaries: Mapping[str, bytes]) -> None:
        """Write all aside, flush once, link all, flush once more."""
        if not AVAILABLE:
            for key, content in binaries.items():
                self.put(key, [content])
            return
        names: dict[str, str] = {}
        try:
            for key, content in binaries.items():
                names[check_key(key)] = self._write_aside(content)
            with translated():
                flush_filesystem(self._folders.root)
                for key, name in names.items():
                    self._folders.publish(name, key, flush=False)
                flush_filesystem(self._folders.root)
        finally:
            for name in names.values():
                self._folders.discard(name)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Read the range in chunks."""
        with self._opened(check_key(key)) as descriptor:
            position = start
            while end is None or position < end:
                wanted = CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - position)
                with translated():
                    chunk = os.pread(descriptor, wanted, position)
                if not chunk:
                    return
                position += len(chunk)
                yield chunk

    def head(self, key: str) -> StoredBlob | None:
        """Look at the file."""
        with translated(), self._folders.shard(check_key(key)) as (shard, name):
            try:
                return stored(key, os.stat(name, dir_fd=shard, follow_symlinks=False))
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        """Unlink the file."""
        with translated(), self._folders.shard(check_key(key)) as (shard, name):
            try:
                os.unlink(name, dir_fd=shard)
            except FileNotFoundError:
                return

    def renew(self, key: str) -> StoredBlob | None:
        """Touch the file."""
        with translated():
            found = self._folders.renew(check_key(key))
            return found and stored(key, found)

    def delete_unless_renewed(self, key: str, modified_ms: int) -> bool:
        """Take the file away, look at it, and remove it or lay it back."""
        with translated():
            return self._folders.remove_if(
                check_key(key), lambda found: found.st_mtime_ns // 1_000_000 == modified_ms
            )

    def list(self, prefix: str) -> Iterator[StoredBlob]:
        """Walk the folders that the prefix leaves, one at a time."""
        kinds = [kind for kind in KINDS if f"{kind}/".startswith(prefix[: len(kind) + 1])]
        named = prefix.split("/")[1:2] if prefix.count("/") > 1 else []
        for kind in kinds:
            for shard in [shard for shard in named if shard in SHARDS] if named else SHARDS:
                folder = f"{kind}/{shard}/"
                if folder.startswith(prefix) or prefix.startswith(folder):
                    yield from self._list_shard(folder, prefix)

    def now_ms(self) -> int:
        """Ask the file system what time a new file gets."""
        with self._aside() as (_, descriptor), translated():
            os.write(descriptor, b"now")
            return os.fstat(descriptor).st_mtime_ns // 1_000_000

    def check(self) -> None:
        """Write a file aside, and see that the configured path is still this folder."""
        with self._aside() as (_, descriptor), translated():
            os.write(descriptor, b"check")
            os.fsync(descriptor)
            if not os.path.samestat(self.root.stat(), os.fstat(self._folders.root)):
                raise OSError("another folder has taken its place; restart")

    def close(self) -> None:
        """Close the folders."""
        self._folders.close()

    @contextmanager
    def _aside(self) -> Iterator[tuple[str, int]]:
        """Lend a new file, gone afterwards unless it has been published."""
        with translated():
            name, descriptor = self._folders.create()
        try:
            yield name, descriptor
        finally:
            with translated():
                os.close(descriptor)
                self._folders.discard(name)

    def _write_aside(self, content: bytes) -> str:
        with translated():
            name, descriptor = self._folders.create()
        try:
            _write(descriptor, content)
        except BaseException:
            self._folders.discard(name)
            raise
        finally:
            os.close(descriptor)
        return name

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        with translated():
            try:
                descriptor = self._folders.open_blob(key)
            except FileNotFoundError as error:
                raise BlobMissing(f"the blob folder has no {key}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _list_shard(self, folder: str, prefix: str) -> Iterator[StoredBlob]:
        with translated(), self._folders.shard(folder) as (shard, _):
            names = names_in(shard)
        for name in names:
            if (folder + name).startswith(prefix):
                with suppress(InvalidBlobKey):  # a stranger's file
                    if found := self.head(folder + name):
                        yield found


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    with translated():
        while left:
            left = left[os.write(descriptor, left) :]


def flush_filesystem(descriptor: int) -> None:
    """Make durable all that was written to the file system of `descriptor`. Raises OSError."""
    if _syncfs is None:
        raise OSError("this system can't flush a file system")
    if _syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
