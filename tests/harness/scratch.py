"""Where the tests' servers and folders keep their data: on memory where there is enough of it.

The servers of a run write and delete tens of gigabytes and call fsync for each commit, which costs
half of the run's time on a disk. Processes are killed in the tests, machines are not.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_MEMORY = Path("/dev/shm")  # a file system on memory, on Linux
_NEEDED = 10 * 2**30


def use_memory() -> None:
    """Let temporary files be on memory, here and in every child, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(_MEMORY))


def remove(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder as `shutil.rmtree` does, which opens each folder in it to look what is there.

    A blob store has 768 folders, nearly all of them empty: a quarter of the time.
    """
    with suppress(OSError):
        _remove_what_is_in(folder)
    shutil.rmtree(folder, ignore_errors=ignore_errors)


def _remove_what_is_in(name: Path | str, above: int | None = None) -> None:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            try:
                os.rmdir(entry.name, dir_fd=folder)
            except OSError:  # it is not empty
                _remove_what_is_in(entry.name, folder)
                os.rmdir(entry.name, dir_fd=folder)
    finally:
        os.close(folder)


def is_on_memory(path: Path) -> bool:
    """Return whether deleting and copying files there costs little."""
    return path.is_relative_to(_MEMORY)


def _has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK):
        return False
    folder = os.statvfs(_MEMORY)
    if folder.f_flag & os.ST_NOEXEC or folder.f_bavail * folder.f_frsize < _NEEDED:
        return False
    lines = Path("/proc/meminfo").read_text().splitlines()
    memory = dict(line.split(":", 1) for line in lines)
    return int(memory["MemAvailable"].split()[0]) * 1024 >= _NEEDED
