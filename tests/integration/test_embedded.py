"""The embedded PostgreSQL: started, adopted, and never mistaken for another program."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse_services.cli.stack import embedded, ports
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.postgres_binaries import (
    PostgresFailed,
    binaries,
    publish,
    run,
    server_user,
)
from tests.harness.waiting import eventually


@contextmanager
def _home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="packhorse-test-embedded-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with _home() as home:
        server = EmbeddedPostgres(home, connections=450)
        yield server
        server.stop("immediate")


@pytest.fixture
def running(server: EmbeddedPostgres) -> EmbeddedPostgres:
    server.start()
    return server


def test_a_second_launcher_adopts_the_running_server(running: EmbeddedPostgres) -> None:
    second = EmbeddedPostgres(running.home)
    second.start()
    assert (second.pid(), second.port) == (running.pid(), running.port)
    assert second.url() == running.url()


def test_data_outlives_kill_9(running: EmbeddedPostgres) -> None:
    with psycopg.connect(running.ensure_database("kept"), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS one")
    port = running.port
    os.kill(running.pid(), signal.SIGKILL)
    running.start()
    assert running.port == port, "programs know the URL; the port stays"
    with psycopg.connect(running.url("kept")) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)


def test_a_start_waits_for_the_children_of_a_server_that_was_killed(
    running: EmbeddedPostgres,
) -> None:
    with psycopg.connect(running.url()) as connection:
        child = connection.info.backend_pid
        os.kill(child, signal.SIGSTOP)
        said_before = running.log.stat().st_size
        os.kill(running.pid(), signal.SIGKILL)
        with ThreadPoolExecutor() as threads:
            try:
                started = threads.submit(running.start)
                eventually(
                    lambda: b"still in use" in running.log.read_bytes()[said_before:],
                    "its shared memory is in use",
                )
            finally:
                os.kill(child, signal.SIGCONT)
            started.result(120)
    with psycopg.connect(running.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_it_takes_as_many_connections_as_were_asked_for(running: EmbeddedPostgres) -> None:
    with psycopg.connect(running.url()) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("450",)


def test_a_wrong_password_is_refused(running: EmbeddedPostgres) -> None:
    wrong = running.url().replace(running.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_the_password_is_readable_by_nobody_else(server: EmbeddedPostgres) -> None:
    server.start()
    secret = server.home / "password"
    for _ in range(2):
        said = secret.stat()
        assert (said.st_uid, stat.S_IMODE(said.st_mode)) == (os.geteuid(), 0o600)
        if os.geteuid() == 0:  # then the server runs as another user, as which others may run too
            assert server.data.stat().st_uid != 0
        server.stop()
        server.start()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_servers_user_can_put_no_link_where_its_log_is_cut(running: EmbeddedPostgres) -> None:
    folder = running.log.parent.stat()
    assert (folder.st_uid, folder.st_mode & 0o022) == (os.geteuid(), 0)
    assert stat.S_IMODE(running.log.stat().st_mode) == 0o600


def test_settings_are_written_as_the_servers_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.touch(mode=0o400)

    def run_beside_an_attacker(tool: str, *arguments: Any, **process: Any) -> Any:
        done = run(tool, *arguments, **process)
        if tool == "initdb":
            settings = Path(arguments[1]) / "postgresql.conf"
            settings.unlink()
            settings.symlink_to(victim)
        return done

    monkeypatch.setattr(embedded, "run", run_beside_an_attacker)
    with _home() as home, pytest.raises(PostgresFailed, match="ermission denied"):
        EmbeddedPostgres(home).start()
    assert victim.read_bytes() == b""


def test_root_runs_it_as_a_user_of_its_own_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"nobody": pwd.getpwnam("nobody")}
    monkeypatch.setattr(pwd, "getpwnam", known.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert server_user(tmp_path / "new") is None, "who runs it"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert server_user(tmp_path / "new") == known["nobody"]
    known["packhorse"] = pwd.struct_passwd(("packhorse", "x", 901, 901, "", "/", "/bin/false"))
    assert server_user(tmp_path / "new") == known["packhorse"]


def test_data_stays_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {54_321: pwd.struct_passwd(("before", "x", 54_321, 1, "", "/", "/bin/false"))}
    monkeypatch.setattr(pwd, "getpwuid", owners.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result((0o40700, *[54_321] * 9)))
    assert server_user(tmp_path) == owners[54_321]
    owners.clear()
    with pytest.raises(PostgresFailed, match="54321"):
        server_user(tmp_path)


def test_a_reused_pid_is_neither_adopted_nor_ended(server: EmbeddedPostgres) -> None:
    server.start()
    lock = server.data / "postmaster.pid"
    lines = lock.read_text()
    server.stop()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lock.write_text(lines.replace(lines.split("\n")[0], str(other.pid), 1))
        assert not server.running()
        server.stop()
        server.start()
        assert server.pid() != other.pid
        assert other.poll() is None
        other.communicate()


def test_a_lock_file_that_a_loss_of_power_emptied_is_removed(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    (server.data / "postmaster.pid").write_text("")
    assert not server.running()
    with pytest.raises(PostgresFailed, match="no PostgreSQL runs"):
        server.pid()
    server.start()
    assert server.running()


class Recovering(EmbeddedPostgres):
    """A server whose recovery takes longer than pg_ctl waits, and ends when it is looked at."""

    looked_at = 0

    def _control(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        done = super()._control(*arguments)
        if "start" in arguments:
            self.say("starting")
            done.returncode = 1
        return done

    def say(self, state: str) -> None:
        lock = self.data / "postmaster.pid"
        lines = lock.read_text().split("\n")
        lock.write_text("\n".join([*lines[:7], f"{state:<8}", *lines[8:]]))

    def has_recovered(self) -> bool:
        self.looked_at += 1
        self.say("ready")
        return False


def test_a_long_recovery_is_waited_for_unless_it_is_cancelled(
    server: EmbeddedPostgres, capfd: pytest.CaptureFixture[str]
) -> None:
    server.start()
    server.stop()
    again = Recovering(server.home)
    again.cancelled = lambda: True
    with pytest.raises(PostgresFailed, match="not recovered yet"):
        again.start()
    again.cancelled = again.has_recovered
    again.start()
    assert again.looked_at == 1, "it is adopted while it recovers"
    again.stop()
    again.start()
    assert again.looked_at == 2
    assert "PostgreSQL recovers" in capfd.readouterr().err
    with psycopg.connect(again.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_first_start_that_was_cut_short_begins_anew() -> None:
    with _home() as home:
        (home / "unfinished").mkdir()
        (home / "unfinished" / "PG_VERSION").write_text("18\n")
        server = EmbeddedPostgres(home)
        try:
            server.start()
            assert server.running()
        finally:
            server.stop("immediate")


def test_the_next_run_has_the_same_port(running: EmbeddedPostgres) -> None:
    running.stop()
    ports._given.remove(running.port)  # it is another process
    again = EmbeddedPostgres(running.home)
    again.start()
    assert again.port == running.port, "programs that joined the stack know its URL"


def test_a_stopped_server_says_so(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    assert not server.running()
    assert not server.attach()
    with pytest.raises(PostgresFailed, match="no PostgreSQL runs"):
        server.pid()


def test_a_server_that_cannot_start_shows_what_it_said(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    conf = server.data / "postgresql.conf"
    good = conf.read_text()
    conf.write_text(good + "shared_buffers = nonsense\n")
    try:
        with pytest.raises(PostgresFailed, match="shared_buffers"):
            server.start()
    finally:
        conf.write_text(good)


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    programs = tmp_path / "site" / binaries().relative_to(binaries().parents[2])
    programs.mkdir(parents=True)
    os.mkfifo(programs / "postgres")
    with pytest.raises(PostgresFailed, match=r"can't be copied to .*named pipe"):
        publish(tmp_path / "site", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_copied_programs_find_their_libraries(tmp_path: Path) -> None:
    programs = binaries()
    site = programs.parents[2]
    publish(site, tmp_path / "copy")
    publish(site, tmp_path / "copy")
    for tool in ("postgres", "initdb", "pg_ctl"):
        command = [tmp_path / "copy" / programs.relative_to(site) / tool, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "PostgreSQL) 18" in said
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
