"""A real PostgreSQL from a wheel, run as a child of ours: no apt, no Docker, no root needed."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

import psycopg
import stamina
from psycopg import sql

from packhorse.errors import Transient
from packhorse_services.cli.client import output
from packhorse_services.cli.stack.ports import free_port
from packhorse_services.cli.stack.postgres_binaries import (
    PostgresFailed,
    as_user,
    check_reach,
    give_away,
    piped,
    run,
    server_user,
)

_USER = "postgres"
_LOCK_FILE = "postmaster.pid"
_LOOK_S = 0.2
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

    `connections` is how many it takes once it is started; a start that takes long ends when it is
    `cancelled`.
    """

    home: Path
    port: int = 0
    connections: int = 400
    password: str = field(default="", repr=False)
    cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)

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
        """What the server says: beside its data, for its user may put a link there for any name.

        Who runs this cuts it, root too.
        """
        return self.home / "server.log"

    def start(self) -> None:
        """Start the server, or adopt the one that an earlier run left behind.

        Returns once it takes connections, however long it recovers from a crash; waits up to 45 s
        for an earlier one that is still ending. Raises `PostgresFailed`, `PostgresBusy`.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        check_reach(self.home)
        if not self.data.exists():
            self._initialise()
        for attempt in stamina.retry_context(
            on=PostgresBusy, timeout=45, attempts=None, wait_max=1.0
        ):
            with attempt:
                self._await_recovery()
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
        settings = "".join(f"{name} = {value}\n" for name, value in _SETTINGS.items())
        append = ("-c", 'printf %s "$1" >>"$0"', fresh / "postgresql.conf", settings)
        run("/bin/sh", *append, **as_user(user))  # in the user's folder nothing is written by root
        fresh.rename(self.data)

    def _launch(self) -> None:
        self._forget_reused_pid()
        port = self.port or free_port(self._last_port())
        self.log.touch(mode=0o600)
        give_away(self.log, server_user(self.data))
        said_before = self.log.stat().st_size
        options = f"-p {port} -c max_connections={self.connections}"
        started = self._control("-t", "120", "-l", self.log, "-o", options, "start")
        if started.returncode == 0 or self._await_recovery():
            self.password, self.port = self._secret.read_text().strip(), port
            return
        said = self.log.read_bytes()[said_before:].decode(errors="replace")[-2000:]
        if any(sign in said for sign in _ENDING) or ("already in use" in said and not self.port):
            raise PostgresBusy("the server of an earlier run has not ended yet; start again")
        raise PostgresFailed(f"PostgreSQL does not start: {started.stdout}{said}")

    def _control(self, *arguments: str | Path) -> CompletedProcess[str]:
        user = as_user(server_user(self.data))
        return run("pg_ctl", "-D", self.data, "-w", *arguments, check=False, **user)

    def _await_recovery(self) -> bool:
        """Return whether the server runs, once it is no longer starting."""
        said = False
        while self.running() and [one.strip() for one in self._lock_lines()[7:8]] == ["starting"]:
            if self.cancelled():
                raise PostgresFailed("PostgreSQL had not recovered yet, and begins anew next time")
            if not said:
                output.report(f"PostgreSQL recovers, which may take minutes; see {self.log}")
            said = True
            time.sleep(_LOOK_S)
        return self.running()

    def _forget_reused_pid(self) -> None:
        """Remove a lock file without a pid, or whose pid is another program's.

        A dead pid the server sees itself.
        """
        lines = self._lock_lines()
        if not lines or _alive(int(lines[0])):
            (self.data / _LOCK_FILE).unlink(missing_ok=True)

    def _lock_lines(self) -> list[str]:
        """Return what a running server writes down: pid, data folder, start time, port, state."""
        try:
            lines = (self.data / _LOCK_FILE).read_text().split("\n")
        except FileNotFoundError:
            return []
        return lines if lines[0].isdecimal() else []  # a loss of power leaves it empty

    def _last_port(self) -> int:
        """Return the port of the last run, which programs that joined the stack know; 0: none."""
        try:
            said = (self.data / "postmaster.opts").read_text()
        except FileNotFoundError:
            return 0
        found = re.search(r'"-p" "(\d+)"', said)
        return int(found.group(1)) if found else 0

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
