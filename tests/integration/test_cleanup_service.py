"""The cleanup as a service: HTTP, command line, settings, the journal's retention."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import ValidationError

from packhorse.db.connect import connect
from packhorse.messaging.api import JournalUnavailable
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.metrics import CLEANUP_LAST_SUCCESS
from packhorse.runtime.principal import Principal
from packhorse_services.cleanup import cleanup_lock, ledger
from packhorse_services.cleanup.app import _show_success, cleanup_service
from packhorse_services.cleanup.cleanup_lock import CleanupBusy, CleanupLockLost, acquire_lock
from packhorse_services.cleanup.report import RunState
from packhorse_services.cleanup.settings import Settings
from tests.harness.cleanup import Altered, Stage, journal_away, staged
from tests.harness.command_line import program
from tests.harness.grown import growth
from tests.harness.postgres import Databases
from tests.harness.waiting import eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


def _runs(stage: Stage) -> list[Any]:
    return ledger.recent(stage.database, 100)


def test_a_cron_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="no cron expression"):
        Settings.model_validate({"database_url": "postgresql://h/d", "cleanup_cron": "often"})


def test_by_hand_while_another_instance_is_at_it_is_refused(stage: Stage) -> None:
    with acquire_lock(stage.url), pytest.raises(CleanupBusy):
        stage.run()
    assert stage.run().state is RunState.SUCCEEDED


def test_a_turn_ends_before_its_session(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres may notice only later that a session was closed."""
    sessions: list[Any] = []

    def lasting(*given: Any, **more: Any) -> psycopg.Connection:
        sessions.append(connect(*given, **more))
        monkeypatch.setattr(sessions[-1], "close", lambda: None)
        return sessions[-1]

    monkeypatch.setattr(cleanup_lock, "connect", lasting)
    epochs = []
    for _ in range(2):
        with acquire_lock(stage.url) as lock:
            epochs.append(lock.epoch)
    assert epochs[1] == epochs[0] + 1
    monkeypatch.undo()
    for session in sessions:
        session.close()


def test_a_cleaner_that_is_paused_loses_its_turn(stage: Stage) -> None:
    with acquire_lock(stage.url) as paused:
        paused.connection.execute("SET idle_session_timeout = '200ms'")

        def next_takes_over() -> bool:
            try:
                with acquire_lock(stage.url) as after:
                    return after.epoch > paused.epoch
            except CleanupBusy:
                return False

        eventually(next_takes_over)
        with pytest.raises(psycopg.OperationalError):
            paused.check()


class _Tokens:
    async def principal(self, token: str) -> Principal | None:
        scopes = {"admin": {"admin"}, "viewer": {"queues:read", "distribute", "content:write"}}
        return Principal(token, frozenset(scopes[token])) if token in scopes else None


@pytest.fixture
def service(stage: Stage) -> Iterator[Service]:
    settings = Settings.model_validate({"database_url": stage.url})
    service = cleanup_service(settings, stage.journal, stage.blobs, Authenticator(_Tokens()))
    with Lifecycle(service.components[:1]):  # the pool
        yield service


def _ask(
    service: Service, method: str, path: str, *, token: str = "admin", **options: Any
) -> httpx.Response:
    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(service.app)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers, **options)

    return asyncio.run(asking())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/cleanup/runs"), ("GET", "/cleanup/runs/1"), ("POST", "/cleanup/runs")],
)
def test_runs_are_for_admins(service: Service, method: str, path: str) -> None:
    body: dict[str, Any] = {"json": {}} if method == "POST" else {}
    assert _ask(service, method, path, token="", **body).status_code == 401
    assert _ask(service, method, path, token="stranger", **body).status_code == 401
    assert _ask(service, method, path, token="viewer", **body).status_code == 403


def test_a_run_that_is_asked_for_is_done_and_can_be_read(stage: Stage, service: Service) -> None:
    old = stage.publish()
    stage.forget_log()
    [_, _, runs, _] = service.components
    runs.start()
    try:
        assert _ask(service, "POST", "/cleanup/runs", json={}).status_code == 202
        eventually(lambda: [run.state for run in _runs(stage)] == [RunState.SUCCEEDED])
        assert not stage.has(old)
        answer = _ask(service, "POST", "/cleanup/runs", json={"dry_run": True})
        assert answer.status_code == 202
        where = answer.headers["location"]
        assert where == f"/cleanup/runs/{answer.json()['id']}"
        report = eventually(
            lambda: (found := _ask(service, "GET", where).json())["state"] == "SUCCEEDED" and found
        )
    finally:
        runs.stop(60)
    assert report["origin"] == "request of admin"
    assert report["dry_run"] is True
    [_, first] = _ask(service, "GET", "/cleanup/runs").json()
    assert first["removed"] == {"forgotten": {"count": 1, "bytes": len(old)}}
    assert stage.acts() == [("admin", "startCleanupRun")] * 2


def test_a_second_request_while_one_waits_is_409(service: Service) -> None:
    assert _ask(service, "POST", "/cleanup/runs", json={}).status_code == 202
    answer = _ask(service, "POST", "/cleanup/runs", json={})
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/run-waits"


def test_removals_come_in_pages(stage: Stage, service: Service) -> None:
    packages = {stage.publish() for _ in range(5)}
    stage.forget_log()
    run = stage.run()
    seen: list[str] = []
    url = f"/cleanup/runs/{run.id}?limit=2"
    while url:
        answer = _ask(service, "GET", url)
        seen += [removal["key"] for removal in answer.json()["removals"]]
        url = answer.json()["next"]
        assert answer.headers.get("Link") == (f'<{url}>; rel="next"' if url else None)
    assert len(seen) == 5
    assert {key.rpartition("/")[2] for key in seen} == packages


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/cleanup/runs/99", 404),
        ("/cleanup/runs/x", 422),
        ("/cleanup/runs?limit=0", 422),
        ("/cleanup/runs?limit=1000000", 422),
        ("/cleanup/runs/99999999999999999999", 422),
        ("/cleanup/runs/1?after=%00", 422),
    ],
)
def test_wrong_requests_are_problems(service: Service, path: str, status: int) -> None:
    answer = _ask(service, "GET", path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_it_is_ready_when_journal_database_and_blobs_are(service: Service) -> None:
    checks = _ask(service, "GET", "/readyz?verbose", token="").json()["checks"]
    assert checks == {"database": "ok", "journal": "ok", "blobs": "ok"}


def test_the_journals_retention_is_enforced(stage: Stage) -> None:
    called = threading.Event()
    settings = Settings.model_validate({"database_url": stage.url, "retention_seconds": 0.01})
    journal: Any = Altered(stage.journal, {"enforce_retention": called.set})
    service = cleanup_service(settings, journal, stage.blobs, Authenticator.off())
    [pool, *_, retention] = service.components
    with Lifecycle([pool, retention]):
        assert called.wait(120)


@pytest.fixture
def environment(databases: Databases, database_url: str, tmp_path: Path) -> dict[str, str]:
    settings = {
        "DATABASE_URL": database_url,
        "JOURNAL_URL": databases.new("journal"),
        "BLOBS_URL": str(tmp_path / "blobs"),
        "TOKEN_FILE": str(tmp_path / "tokens"),
        "PORT": "0",
    }
    return {**os.environ, **{f"PACKHORSE_{name}": value for name, value in settings.items()}}


def _command(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return program("packhorse_services.cleanup", *arguments, environment=environment)


def test_by_hand_from_the_command_line(
    environment: dict[str, str], database_url: str, tmp_path: Path
) -> None:
    journal = open_journal(environment["PACKHORSE_JOURNAL_URL"], client_name="tests")
    with staged(database_url, tmp_path / "blobs", journal) as stage:
        old = stage.publish()
        stage.forget_log()
        preview = json.loads(_command(environment, "run", "--dry-run", "--json").stdout)
        assert stage.has(old)
        assert [removal["reason"] for removal in preview["removals"]] == ["forgotten"]
        done = _command(environment, "run")
        assert done.returncode == 0
        assert f"removed packages/{old[-2:]}/{old} (forgotten" in done.stdout
        assert not stage.has(old)
        with acquire_lock(stage.url):
            busy = _command(environment, "run")
        assert busy.returncode == 1
        assert busy.stderr == ("can't start: another instance is cleaning up; wait for it to end\n")


def test_wrong_settings_are_one_sentence(environment: dict[str, str]) -> None:
    refused = _command({**environment, "PACKHORSE_CLEANUP_CRON": "often"}, "run")
    assert refused.returncode == 2
    assert refused.stderr.startswith("can't start: PACKHORSE_CLEANUP_CRON: 'often'")
    assert refused.stderr.count("\n") == 1


def test_every_replica_and_every_start_shows_when_the_last_run_succeeded(
    stage: Stage, service: Service
) -> None:
    def shown() -> float:
        CLEANUP_LAST_SUCCESS.set(0)  # what this process has done itself does not count
        _show_success(service.app.state.pool)
        return CLEANUP_LAST_SUCCESS._value.get()

    assert shown() == 0
    stage.run(dry_run=True)
    assert shown() == 0, "it has removed nothing"
    run = stage.run()
    assert run.ended_at is not None
    with pytest.raises(JournalUnavailable):
        stage.run(journal=Altered(stage.journal, {"bounds": journal_away}))
    assert shown() == pytest.approx(run.ended_at.timestamp(), abs=0.001)


def test_runs_and_what_they_remove_are_counted(stage: Stage) -> None:
    removed = {"reason": "forgotten"}
    grown = growth(
        *(("cleanup_runs_total", {"outcome": one}) for one in ("failed", "lost", "succeeded")),
        ("cleanup_removed_total", removed),
        ("cleanup_removed_bytes_total", removed),
    )

    def replaced(*arguments: Any, **named: Any) -> Any:
        stage.replace_cleaner()
        return stage.journal.bounds(*arguments, **named)

    old = stage.publish()
    stage.forget_log()
    for bounds, error in ((journal_away, JournalUnavailable), (replaced, CleanupLockLost)):
        with pytest.raises(error):
            stage.run(journal=Altered(stage.journal, {"bounds": bounds}))
    stage.run()
    assert grown() == [1, 1, 1, 1, len(old)]
