"""A real PostgreSQL from a wheel, run as a child of ours: no apt, no Docker, no root needed."""

import os
import pwd
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psycopg
import stamina
from psycopg import sql

from packhorse.errors import Transient
from packhorse_services.cli.stack.ports import free_port
from packhorse_services.cli.stack.postgres_binaries import PostgresFailed, check_reach, run

OWN, SHARED = "packhorse", "nobody"
_USER = "postgres"
_LOCK_FILE = "postmaster.pid"
_ENDING = (_LOCK_FILE, "is still in use")
"""What a server says in whose data folder another one runs, or a child of one that was killed."""
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "shared_buffers": "'256MB'",
    "max_wal_size": "'4GB'",
    "wal_level": "logical",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "'UTC'",
    "scram_iterations": "4096",
}


class PostgresBusy(Transient):
    """The server of an earlier run is still starting or ending; try again in a moment."""


_CLOSE = sql.SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC")


@dataclass
class EmbeddedPostgres:
    """One server, its data below `home`, one port on loopback, one password.

    `connections` is how many it takes once it is started.
    """

    home: Path
    port: int = 0
    connections: int = 400
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.home = self.home.absolute()  # the server works in a folder of its own

    @property
    def data(self) -> Path:
        """The server's own data folder."""
        return self.home / "data"

    @property
    def _secret(self) -> Path:
        """The superuser's password; the server itself does not read it."""
        return self.home / "password"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.data / "server.log"

    def start(self) -> None:
        """Start the server, or adopt the one that an earlier run left behind.

        Returns once it takes connections; waits up to 45 s for an earlier one that is still
        ending. Raises `PostgresFailed`, `PostgresBusy`.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        check_reach(self.home)
        keep_private(self._secret)
        if not self.data.exists():
            self._initialise()
        for attempt in stamina.retry_context(
            on=PostgresBusy, timeout=45, attempts=None, wait_max=1.0
        ):
            with attempt:
                if not self.attach():
                    self._launch()

    def attach(self) -> bool:
        """Find the running server of this home, without starting one; false when none runs.

        Raises `PostgresBusy` while it takes no connections.
        """
        if not self.running():
            return False
        self.password = self._secret.read_text().strip()
        self.port = int(self._lock_lines()[3])
        self._check_identity()
        return True

    def stop(self, mode: str = "fast") -> None:
        """End the server by its own pid and wait for it; `mode` as for pg_ctl.

        Nothing happens when it does not run. Raises `PostgresFailed` when it goes on running.
        """
        if not self.running():
            return
        stopped = self._control("-m", mode, "-t", "60", "stop")
        if stopped.returncode != 0 and self.running():
            raise PostgresFailed(f"PostgreSQL (pid {self.pid()}) goes on running; see {self.log}")

    def running(self) -> bool:
        """Return whether the server's process is there, whether or not it takes connections."""
        lines = self._lock_lines()
        return len(lines) > 3 and _is_postmaster(int(lines[0]), self.data)

    def pid(self) -> int:
        """Return the process id of the server. Raises `PostgresFailed` when it does not run."""
        lines = self._lock_lines()
        if not lines:
            raise PostgresFailed(f"no PostgreSQL runs on {self.data}")
        return int(lines[0])

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database of this server, password included."""
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def databases(self) -> set[str]:
        """Return the names of all databases."""
        with psycopg.connect(self.url()) as connection:
            return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}

    def ensure_database(self, name: str, template: str = "template1") -> str:
        """Create the database as a copy of `template` unless it is there, and return its URL."""
        if name not in self.databases():
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
                connection.execute(_CLOSE.format(sql.Identifier(name)))  # a copy is open again
        return self.url(name)

    def _initialise(self) -> None:
        """Build the data folder beside its place, so that a start that is cut short leaves none."""
        fresh = self.home / "unfinished"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        user = server_user(self.data)
        give_away(fresh, user)
        password = secrets.token_urlsafe(24)
        self._secret.unlink(missing_ok=True)
        self._secret.touch(mode=0o600)
        self._secret.write_text(password)
        with os.fdopen(piped(password, user)) as reported:
            run(
                *("initdb", "-D", fresh, "-U", _USER, "--pwfile=/dev/stdin", "--locale=C.UTF-8"),
                *("--auth-host=scram-sha-256", "--auth-local=scram-sha-256", "-E", "UTF8"),
                *("-c", "scram_iterations=1"),  # costs each connect 5 ms; nobody guesses 192 bits
                stdin=reported,
                **as_user(user),
            )
        with (fresh / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in _SETTINGS.items())
        fresh.rename(self.data)

    def _launch(self) -> None:
        self._forget_reused_pid()
        port = self.port or free_port()
        said_before = self.log.stat().st_size if self.log.exists() else 0
        options = f"-p {port} -c max_connections={self.connections}"
        started = self._control("-t", "120", "-l", self.log, "-o", options, "start")
        if started.returncode == 0:
            self.password, self.port = self._secret.read_text().strip(), port
            return
        said = self.log.read_bytes()[said_before:].decode(errors="replace")[-2000:]
        if any(sign in said for sign in _ENDING) or ("already in use" in said and not self.port):
            raise PostgresBusy("the server of an earlier run has not ended yet; start again")
        raise PostgresFailed(f"PostgreSQL does not start: {started.stdout}{said}")

    def _control(self, *arguments: str | Path) -> CompletedProcess[str]:
        user = as_user(server_user(self.data))
        return run("pg_ctl", "-D", self.data, "-w", *arguments, check=False, **user)

    def _forget_reused_pid(self) -> None:
        """Remove a lock file whose pid is another program's; a dead pid the server sees itself."""
        lines = self._lock_lines()
        if lines and _alive(int(lines[0])):
            (self.data / _LOCK_FILE).unlink()

    def _lock_lines(self) -> list[str]:
        """Return what a running server writes down: pid, data folder, start time, port."""
        try:
            return (self.data / _LOCK_FILE).read_text().split("\n")
        except FileNotFoundError:
            return []

    def _check_identity(self) -> None:
        try:
            with psycopg.connect(self.url(), connect_timeout=5) as connection:
                found = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError as error:
            raise PostgresBusy(
                f"process {self.pid()} holds {self.data} and takes no connections: {error}; wait, "
                f"or if it is no PostgreSQL remove {self.data / _LOCK_FILE}"
            ) from error
        if found is None or Path(found[0]).resolve() != self.data.resolve():
            raise PostgresFailed(f"port {self.port} is the server of {found}, not of {self.data}")


def _is_postmaster(pid: int, data: Path) -> bool:
    """Return whether `pid` can be the server of `data`; the id of a dead one may be used again.

    A server works in its data folder. Where that can't be seen (a zombie, no /proc), the benefit
    of the doubt is its.
    """
    if not _alive(pid):
        return False
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except OSError:
        return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # nobody's, or another user's and so not ours
        return False
    return True


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
