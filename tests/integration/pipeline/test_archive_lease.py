"""The archive's lease: one run on the same tables, and the next as soon as that has ended."""

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from psycopg import Connection
from pydantic import SecretStr

from packhorse.runtime.signals import set_by_signals
from packhorse_services.pipeline.archive import command, lease
from packhorse_services.pipeline.archive.lease import ArchiveLease, only_run
from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.engine import session
from packhorse_services.pipeline.engine.exit_codes import FAILED, exit_code
from packhorse_services.pipeline.errors import JarsMissing, NotYet, TaskRefused
from packhorse_services.pipeline.settings import Settings
from tests.harness.borrowing import borrowed
from tests.harness.postgres import end_sessions


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(lease, "_RENEW_S", 0.0)


def end_archives(url: str) -> None:
    """End the sessions of all archives, as Postgres does with those of a paused one."""
    with borrowed(url) as connection:
        end_sessions(connection, "packhorse-archive")


def test_a_second_run_is_refused_until_the_first_has_ended(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_run(database_url, "s3://a/b") as keep:
        keep()
        with (
            pytest.raises(NotYet, match="another run of the archive is at work on s3://a/b"),
            only_run(database_url, "s3://a/b"),
        ):
            pass
        with only_run(database_url, "s3://a/c"):  # other tables
            pass
    monkeypatch.setattr(lease, "_PATIENCE_S", 120.0)  # Postgres notices the end a little later
    with only_run(database_url, "s3://a/b"):
        pass


@pytest.fixture
def settings(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a run that raises `JarsMissing` as soon as it has the lease."""

    def would_start(*_: object) -> NoReturn:
        raise JarsMissing("a JVM would start now")

    monkeypatch.setattr(session, "running_spark", would_start)  # this process may have one already
    return Settings(
        database_url=SecretStr(database_url),
        journal_url=database_url,
        blobs_url=str(tmp_path / "blobs"),
        tables_url=str(tmp_path / "tables"),
    )


def test_a_second_run_is_refused_before_it_starts_a_jvm(
    database_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_run(database_url, settings.tables_url), pytest.raises(NotYet) as refused:
        command._run(settings, 1, Choices())
    assert exit_code(refused.value) == FAILED, "it may be started again as it is"
    monkeypatch.setattr(lease, "_PATIENCE_S", 120.0)  # Postgres notices the end a little later
    with pytest.raises(JarsMissing):
        command._run(settings, 1, Choices())


def test_a_signal_ends_a_run_in_order_that_waits(
    database_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(*_: object) -> None:
        first.close()  # it would get the lease at its next look
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ArchiveLease, "_report_holder", report)
    monkeypatch.setattr(lease, "_LOOK_S", 60.0)
    first = ExitStack()
    with first, set_by_signals(threading.Event()):  # where nobody hears it, it ends the tests
        first.enter_context(only_run(database_url, settings.tables_url))
        said, stopped = command._run(settings, 1, Choices(continuous=True))
    assert stopped
    assert said == "ended by a signal before anything was archived"


def test_who_has_lost_it_takes_it_anew_unless_another_run_has_it(database_url: str) -> None:
    with only_run(database_url, "/t") as keep:
        end_archives(database_url)
        keep()
        refused(database_url)
        end_archives(database_url)
        with only_run(database_url, "/t"), pytest.raises(NotYet):
            keep()


def test_a_continuous_run_waits_until_the_one_that_has_it_has_ended(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = psycopg.connect(database_url, autocommit=True)
    first = ArchiveLease(lambda: session, "/t", threading.Event())
    first.take()
    report = ArchiveLease._report_holder

    def reported(waiting: ArchiveLease, session: Connection) -> None:
        report(waiting, session)
        first.release()

    monkeypatch.setattr(ArchiveLease, "_report_holder", reported)
    holder = f"session {session.info.backend_pid}, "
    with only_run(database_url, "/t", wait=True):
        refused(database_url)
    assert caplog.messages[0] == "waiting for another run of the archive"
    assert caplog.records[0].__dict__["holder"].startswith(holder)


def test_a_question_that_fails_gives_no_lease(database_url: str) -> None:
    session = psycopg.connect(database_url, autocommit=True)
    lease = ArchiveLease(lambda: session, "\0", threading.Event())
    with pytest.raises(psycopg.DataError):
        lease.take()
    assert session.closed, "`keep` would take it for the one that has the lease"


def refused(url: str) -> None:
    with pytest.raises(NotYet), only_run(url, "/t"):
        pass


def test_postgres_soon_notices_that_the_machine_of_the_holder_is_gone(database_url: str) -> None:
    session = psycopg.connect(database_url, autocommit=True)
    lease = ArchiveLease(lambda: session, "/t", threading.Event())
    lease.take()
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    found = [session.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
    lease.release()
    assert found == [("10",), ("5",), ("3",)]


def test_without_a_database_nobody_is_asked() -> None:
    kept: list[Callable[[], None]] = []
    with only_run("", "/t") as keep, only_run("", "/t"):
        keep()
        kept.append(keep)
    assert kept


def test_a_database_that_is_not_there_is_told(database_url: str) -> None:
    with (
        pytest.raises(TaskRefused, match="PACKHORSE_DATABASE_URL"),
        only_run(database_url.rsplit("/", 1)[0] + "/nowhere", "/t"),
    ):
        pass
