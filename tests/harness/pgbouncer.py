"""A real PgBouncer in front of the tests' PostgreSQL."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from packhorse.db.engine import conninfo
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.ports import free_port
from tests.harness.waiting import eventually

_USER = "nobody"
"""PgBouncer refuses to run as root."""

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
pool_mode = {pool_mode}
default_pool_size = {pool_size}
max_client_conn = 1000
logfile = {folder}/pgbouncer.log
"""


@contextmanager
def pgbouncer(
    postgres: EmbeddedPostgres, pool_mode: str, pool_size: int = 100
) -> Iterator[EmbeddedPostgres]:
    """Start a pooler; what it gives names the same databases through the pooler's port."""
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-pgbouncer-"))
    through = EmbeddedPostgres(postgres.home, port=free_port(), password=postgres.password)
    (folder / "users.txt").write_text(f'"postgres" "{postgres.password}"\n')
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(
            server=postgres.port,
            port=through.port,
            folder=folder,
            pool_mode=pool_mode,
            pool_size=pool_size,
        )
    )
    as_user = {"user": _USER} if os.geteuid() == 0 else {}
    if as_user:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, _USER)
    process = subprocess.Popen([_binary(), "-q", settings], **as_user)  # type: ignore[call-overload]
    try:
        eventually(lambda: _answers(through.url()), what="PgBouncer answers")
        yield through
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _binary() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        raise RuntimeError("the tests of poolers need PgBouncer: install the package pgbouncer")
    return found


def _answers(url: str) -> bool:
    try:
        psycopg.connect(conninfo(url), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
