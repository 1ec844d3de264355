"""What only the folder store promises: crashes, links, modes, full disks."""

import errno
import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs import filesystem
from packhorse.blobs.api import BlobCorrupt, BlobStore, BlobStoreUnavailable, package_key
from packhorse.blobs.folders import KINDS, Folders
from packhorse.blobs.open import open_blobs
from tests.harness.command_line import program

KEY = package_key("package-ab")

# Puts a blob, and dies by SIGKILL at the n-th change that it makes to the file system.
DIES = """
import os, signal, sys
from packhorse.blobs.open import open_blobs

root, at, many = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "many"
store = open_blobs(root)
calls = 0

def counted(real):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return call

for name in ("write", "fsync", "link", "unlink", "close"):
    setattr(os, name, counted(getattr(os, name)))
if many:
    store.put_many({f"packages/ab/{number}": b"x" * 100_000 for number in range(3)})
else:
    store.put("packages/ab/0", [b"x" * 50_000, b"x" * 50_000])
os._exit(0)
"""


# Renews a blob just before it would be removed, and dies by SIGKILL at the n-th change. With
# "unused" nobody renews it.
DIES_REMOVING = """
import os, signal, sys
from pathlib import Path
from packhorse.blobs.folders import Folders

root, at, used = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "used"
folders, calls, answers = Folders(Path(root)), 0, [True, not used]

def counted(real):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return call

for name in ("rename", "stat", "link", "replace", "fsync", "unlink"):
    setattr(os, name, counted(getattr(os, name)))
folders.remove_if("packages/ab/package-ab", lambda _: answers.pop(0))
os._exit(0)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> Iterator[BlobStore]:
    store = open_blobs(str(root))
    yield store
    store.close()


@pytest.mark.parametrize("how", ["one", "many"])
def test_killed_anywhere_a_blob_is_whole_or_not_there(
    blobs: BlobStore, root: Path, how: str
) -> None:
    seen = set()
    for at in range(1, 100):
        done = program("tests.harness.script", "-c", DIES, str(root), str(at), how)
        found = list(blobs.list(""))
        seen.add(len(found))
        for blob in found:
            assert b"".join(blobs.get(blob.key)) == b"x" * 100_000
            blobs.delete(blob.key)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    assert seen >= {0, 1}
    assert done.returncode == 0


@pytest.mark.parametrize("use", ["used", "unused"])
def test_r22_a_remover_that_is_killed_anywhere_loses_no_blob_in_use(root: Path, use: str) -> None:
    for at in range(1, 20):
        store = open_blobs(str(root))
        store.put(KEY, [b"content"])
        os.utime(root / KEY, (1, 1))
        store.close()
        done = program("tests.harness.script", "-c", DIES_REMOVING, str(root), str(at), use)
        again = open_blobs(str(root))
        if use == "used" or again.head(KEY):
            assert b"".join(again.get(KEY)) == b"content"
        assert list((root / "incoming").iterdir()) == []
        again.close()
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    assert done.returncode == 0
    assert at > 3


def noted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Return to what the names of these calls of the system are added from now on."""
    done: list[str] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: Any, **named: Any) -> object:
            done.append(name)
            return real(*arguments, **named)

        return call

    for name in names:
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    return done


def test_a_machine_that_crashes_leaves_no_name_without_its_bytes_and_loses_none_that_was_told(
    blobs: BlobStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = noted(monkeypatch, "write", "fsync", "link")
    monkeypatch.setattr(filesystem, "_syncfs", lambda _: done.append("syncfs") or 0)
    for _ in range(2):  # who linked it may not have come to the folder yet
        blobs.put(KEY, [b"x"])
        assert done == ["write", "fsync", "link", "fsync"]
        done.clear()
    blobs.put_many({KEY: b"x"})
    assert done == ["write", "syncfs", "link", "syncfs"]
    assert list((root / "incoming").iterdir()) == []


def test_a_machine_that_crashes_keeps_the_new_folders(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def fsync(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    open_blobs(str(root)).close()
    assert flushed == [*(str(root / kind) for kind in KINDS), str(root)]


def test_where_there_are_no_links_a_file_is_renamed(
    blobs: BlobStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    assert blobs.put(KEY, [b"x"]).created
    assert b"".join(blobs.get(KEY)) == b"x"
    assert list((root / "incoming").iterdir()) == []


def test_r22_what_is_renewed_while_it_is_removed_is_there_again_at_once(
    blobs: BlobStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, answers = Folders(root), iter((True, False))
    blobs.put(KEY, [b"content"])
    done = noted(monkeypatch, "link", "fsync", "unlink")
    assert not folders.remove_if(KEY, lambda _: next(answers))
    assert done == ["link", "fsync", "unlink"]
    assert b"".join(blobs.get(KEY)) == b"content"
    assert list((root / "incoming").iterdir()) == []
    folders.close()


def test_what_was_removed_does_not_come_back(blobs: BlobStore, root: Path) -> None:
    blobs.put(KEY, [b"content"])
    assert blobs.delete_unless_renewed(KEY, (root / KEY).stat().st_mtime_ns // 1_000_000)
    open_blobs(str(root)).close()
    assert blobs.head(KEY) is None


def test_what_is_not_wanted_is_not_even_touched(blobs: BlobStore, root: Path) -> None:
    """Whoever reads or renews a blob that a removal leaves alone finds it at any moment."""
    blobs.put(KEY, [b"content"])
    before = (root / KEY).stat()
    assert not blobs.delete_unless_renewed(KEY, 1)
    assert (root / KEY).stat().st_ctime_ns == before.st_ctime_ns


def test_leftovers_of_killed_writers_go_after_a_day(root: Path) -> None:
    open_blobs(str(root)).close()
    old, young = root / "incoming" / "old", root / "incoming" / "young"
    for path in (old, young):
        path.write_bytes(b"torn")
    os.utime(old, (0, 0))
    open_blobs(str(root)).close()
    assert not old.exists()
    assert young.exists()


def test_a_new_folder_is_private_and_an_old_one_stays_as_it_is(root: Path, tmp_path: Path) -> None:
    open_blobs(str(root)).close()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    open_blobs(f"file://{shared}").close()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750


def test_a_link_in_the_store_is_not_followed(blobs: BlobStore, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (root / KEY).symlink_to(secret)
    with pytest.raises(BlobCorrupt):
        list(blobs.get(KEY))
    with pytest.raises(BlobCorrupt):
        blobs.head(KEY)
    assert not blobs.put(KEY, [b"x"]).created
    assert secret.read_text() == "secret"


def test_a_pipe_in_the_store_is_not_read(blobs: BlobStore, root: Path) -> None:
    os.mkfifo(root / KEY)
    with pytest.raises(BlobCorrupt, match="no plain file"):
        list(blobs.get(KEY))
    with pytest.raises(BlobCorrupt, match="no plain file"):
        blobs.head(KEY)


def test_a_linked_folder_is_not_followed(blobs: BlobStore, root: Path, tmp_path: Path) -> None:
    (root / "packages" / "ab").rmdir()
    (root / "packages" / "ab").symlink_to(tmp_path)
    with pytest.raises((BlobStoreUnavailable, BlobCorrupt)):
        blobs.put(KEY, [b"x"])
    assert not (tmp_path / KEY.rpartition("/")[2]).exists()


def test_strange_files_are_not_listed(blobs: BlobStore, root: Path) -> None:
    blobs.put(KEY, [b"x"])
    (root / "packages" / "ab" / "lost+found").write_text("x")
    assert [blob.key for blob in blobs.list("")] == [KEY]


def test_a_full_disk_leaves_nothing(blobs: BlobStore, root: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(BlobStoreUnavailable):
            blobs.put(KEY, [b"x" * 200_000])
        with pytest.raises(BlobStoreUnavailable):
            blobs.put_many({KEY: b"x" * 200_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert blobs.head(KEY) is None
    assert list((root / "incoming").iterdir()) == []


def test_check_notices_that_the_folder_was_taken_away(root: Path, tmp_path: Path) -> None:
    store = open_blobs(str(root))
    store.check()
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(BlobStoreUnavailable):
        store.check()
    store.close()


def test_a_place_where_nobody_may_write() -> None:
    with pytest.raises(BlobStoreUnavailable):
        open_blobs("/proc/packhorse")
