"""Which user of the system the embedded server runs as: never root, and best one of its own.

PostgreSQL refuses to run as root. What runs as the same user can read the server's data, so root
runs it as `packhorse` where there is such a user, and only else as `nobody`.
"""

import os
import pwd
from pathlib import Path
from typing import Any

from packhorse_services.cli.stack.postgres_binaries import PostgresFailed

OWN, SHARED = "packhorse", "nobody"


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
    """Make a folder private to the user."""
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
    path.chmod(0o700)


def piped(secret: str, user: pwd.struct_passwd | None) -> int:
    """Return the end of a pipe from which the user, and nobody else, reads a secret: as stdin."""
    reading, writing = os.pipe()
    if user is not None:
        os.fchown(reading, user.pw_uid, user.pw_gid)  # or it can't be opened by its name
    os.write(writing, secret.encode())
    os.close(writing)
    return reading


def keep_private(path: Path) -> None:
    """Make a file ours alone, which versions before have given away; what is not there stays so."""
    if os.geteuid() == 0 and path.exists():
        os.chown(path, 0, 0)
        path.chmod(0o600)
