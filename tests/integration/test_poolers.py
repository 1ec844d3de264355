"""PgBouncer between the programs and their databases."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from packhorse.db.connect import async_pool, connect
from packhorse.db.engine import Timeouts, conninfo
from packhorse.db.pool import SharedPool
from packhorse.db.prepare import DatabaseUnusable, prepare_database
from packhorse.messaging.open import open_journal
from packhorse.topology.patience import bookkeeper_connection
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.ports import free_port
from tests.harness.postgres import Databases
from tests.harness.site import site
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


_LIMITS = Timeouts(statement_ms=11_000, lock_ms=12_000, idle_in_transaction_ms=13_000)
_IN_FORCE = """
    SELECT pg_backend_pid(), current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('idle_in_transaction_session_timeout')
"""


def test_in_session_mode_every_connection_has_its_time_limits(databases: Databases) -> None:
    name = databases.new().rpartition("/")[2]
    with pgbouncer(databases.server, "session") as pooler:
        url = pooler.url(name)
        prepare_database(url, "tests")
        with connect(url, "tests", timeouts=_LIMITS) as connection:
            assert connection.info.backend_pid != connection.server_pid, "no pooler between"
            row = connection.execute(_IN_FORCE).fetchone()
            assert row == (connection.server_pid, "11s", "12s", "13s")
        pool = SharedPool(url, "tests", timeouts=_LIMITS)
        with pool.share(1).connection() as connection:
            assert connection.execute(_IN_FORCE).fetchone()[1:] == ("11s", "12s", "13s")
        pool.stop(120)
        assert asyncio.run(_in_force_in_routes(url)) == ("1min", "10s", "30s")
        with bookkeeper_connection(url, "tests") as patient:
            assert patient.execute(_IN_FORCE).fetchone()[1:] == ("4s", "2s", "5s")


async def _in_force_in_routes(url: str) -> tuple[str, ...]:
    async with (
        async_pool(url, "tests") as pool,
        pool.connection() as connection,
    ):
        row = await (await connection.execute(_IN_FORCE)).fetchone()
        return tuple(row[1:])


def test_in_session_mode_content_reaches_its_subscribers(databases: Databases) -> None:
    with pgbouncer(databases.server, "session") as pooler:

        class Pooled(Databases):
            def new(self, prefix: str = "db") -> str:
                return pooler.url(databases.new(prefix).rpartition("/")[2])

        pooled = Pooled(databases.server)
        with site(pooled, pooled.new("journal")) as running:
            running.subscriber("sub1")
            running.start()
            running.put("/page")
            done = running.distribute_everywhere("/page")
            assert [one["state"] for one in done["subscribers"]] == ["IMPORTED"]
            assert len(set(running.hashes("/page").values())) == 1


@pytest.mark.parametrize("pool_size", [1, 20])
def test_a_pooler_that_shares_sessions_is_refused_with_the_reason(
    databases: Databases, pool_size: int
) -> None:
    name = databases.new().rpartition("/")[2]
    with pgbouncer(databases.server, "transaction", pool_size) as pooler:
        with pytest.raises(DatabaseUnusable, match="pool_mode to session"):
            prepare_database(pooler.url(name), "tests")
        journal = open_journal(pooler.url(name), client_name="tests")
        with closing(journal), pytest.raises(DatabaseUnusable, match="pool_mode to session"):
            journal.bounds("topic")
