"""Where the tests' servers and folders keep their data: on memory where there is enough of it.

The servers of a run write and delete tens of gigabytes and call fsync for each commit, which costs
half of the run's time on a disk. Processes are killed in the tests, machines are not.
"""

import os
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # a file system on memory, on Linux
_NEEDED = 10 * 2**30


def use_memory() -> None:
    """Let temporary files be on memory, here and in every child, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(_MEMORY))


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
