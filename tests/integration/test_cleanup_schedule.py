"""The cleanup by its schedule: one run at its time however many instances, retries."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.scheduling.definition import Schedule
from packhorse.jobs.scheduling.store import declare_schedule, list_fire_times, replace_schedule
from packhorse.jobs.scheduling.timing import Cron, Every
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.cleanup import app, ledger
from packhorse_services.cleanup.app import LEADER_TASK, cleanup_service
from packhorse_services.cleanup.report import RunState
from packhorse_services.cleanup.runner import request_run, schedule_of
from packhorse_services.cleanup.settings import Settings
from packhorse_services.cleanup.sweep import Sweep
from tests.harness.cleanup import Altered, Stage, journal_away, staged
from tests.harness.waiting import eventually

NAME = "packhorse.cleanup"
TWELVE_HOURS = Every(timedelta(hours=12))


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


@contextmanager
def instances(stage: Stage, *names: str, journal: Any = None) -> Iterator[None]:
    """Run that many cleanup services on one database."""
    settings = Settings.model_validate({"database_url": stage.url})
    times = TopologyConfiguration(
        topology_interval_s=0.2, topology_timeout_s=60, min_event_delay_s=0
    )
    with ExitStack() as stack:
        for _ in names:
            cluster = join(
                stage.url,
                times,
                InstanceProperties("cleanup", leader_tasks=(LEADER_TASK, "scheduler")),
            )
            service = cleanup_service(
                settings, journal or stage.journal, stage.blobs, Authenticator.off(), cluster
            )
            stack.enter_context(Lifecycle(service.components))
        yield


@contextmanager
def bookkeeping(stage: Stage) -> Iterator[psycopg.Connection]:
    with psycopg.connect(stage.url) as connection:
        act_as(connection, BOOKKEEPER)
        yield connection


def declare(stage: Stage, when: Any = TWELVE_HOURS) -> Schedule:
    with bookkeeping(stage) as connection:
        return declare_schedule(connection, schedule_of(when))


def states(stage: Stage) -> list[str]:
    return [run.state.value for run in ledger.recent(stage.database, 100)]


def due_in(stage: Stage, schedule: Schedule) -> float:
    [(now,)] = stage.database.execute("SELECT clock_timestamp()").fetchall()
    assert schedule.next_fire_time is not None
    found: timedelta = schedule.next_fire_time - now
    return found / timedelta(hours=1)


def come_now(stage: Stage) -> None:
    """Let the time of the next run have come."""
    stage.database.execute("UPDATE jobs.schedule SET next_tick = clock_timestamp()")
    stage.database.execute("SELECT pg_notify('packhorse_schedules', '')")


def is_idle(stage: Stage) -> bool:
    return stage.database.execute("SELECT count(*) FROM jobs.job").fetchall() == [(0,)]


def test_r21_of_many_instances_one_runs_and_once_a_period(stage: Stage) -> None:
    old = stage.publish()
    stage.forget_log()
    declare(stage)
    come_now(stage)
    with instances(stage, "one", "two", "three"):
        for expected in (1, 2):
            eventually(lambda number=expected: states(stage) == ["SUCCEEDED"] * number)
            assert 11.9 < due_in(stage, declare(stage)) <= 12
            eventually(lambda: is_idle(stage))  # or the next moment is skipped: not concurrent
            come_now(stage)
        eventually(lambda: len(states(stage)) == 3)
    assert not stage.has(old)
    with bookkeeping(stage) as connection:
        assert [one.outcome for one in list_fire_times(connection, NAME)] == ["FIRED"] * 3


def test_new_settings_are_followed_unless_an_operator_has_changed_the_schedule(
    stage: Stage,
) -> None:
    declare(stage)
    assert due_in(stage, declare(stage, Every(timedelta(minutes=1)))) <= 1 / 60
    assert declare(stage, Cron("0 3 * * *")).definition.when == Cron("0 3 * * *")
    with bookkeeping(stage) as connection:
        replace_schedule(connection, schedule_of(Every(timedelta(hours=1))))
    assert declare(stage, Cron("0 3 * * *")).definition.when == Every(timedelta(hours=1))


def comes_again(stage: Stage, after: int = 1) -> list[Any]:
    """Return in how long a job that has failed so often, or more, comes again; why; how often."""
    query = (
        "SELECT ready_at - clock_timestamp(), result_message, attempts FROM jobs.job "
        "WHERE state = 'QUEUED' AND attempts >= %s"
    )
    return stage.database.execute(query, (after,)).fetchall()


def test_a_run_that_fails_comes_again_soon_and_then_ever_later(stage: Stage) -> None:
    declare(stage)
    come_now(stage)
    away = Altered(stage.journal, {"bounds": journal_away})
    with instances(stage, "one", journal=away):
        [(pause, reported, attempts)] = eventually(lambda: comes_again(stage))
        assert pause <= timedelta(seconds=5) * 2 ** (attempts - 1)
        assert reported == "the broker is away"
    assert {*states(stage)} == {"FAILED"}
    stage.database.execute("UPDATE jobs.job SET ready_at = clock_timestamp(), attempts = 20")
    with instances(stage, "one", journal=away):
        [(pause, _, _)] = eventually(lambda: comes_again(stage, after=21))
    assert timedelta(minutes=10) < pause <= timedelta(minutes=15)


def test_a_requested_run_that_fails_comes_again_as_it_was(stage: Stage) -> None:
    broken: dict[str, Callable[..., Any]] = {}

    broken["bounds"] = journal_away
    with bookkeeping(stage) as connection:
        request_run(connection, "tests", "request of me", dry_run=True)
    with instances(stage, "one", journal=Altered(stage.journal, broken)):
        eventually(lambda: comes_again(stage))  # the run's end comes before that of its job
        broken.clear()
        stage.database.execute("UPDATE jobs.job SET ready_at = clock_timestamp()")
        eventually(lambda: states(stage)[0] == "SUCCEEDED")
    assert {*states(stage)[1:]} == {"FAILED"}
    again = ledger.recent(stage.database, 1)[0]
    assert (again.origin, again.dry_run, again.state) == (
        "request of me",
        True,
        RunState.SUCCEEDED,
    )


def test_a_run_that_waits_without_a_job_is_done_by_the_next_one(stage: Stage) -> None:
    with bookkeeping(stage) as connection:
        ledger.request(connection, "nobody's job", dry_run=False)
    declare(stage)
    come_now(stage)
    with instances(stage, "one"):
        eventually(lambda: states(stage) == ["SUCCEEDED"] * 2)
    origins = [run.origin for run in ledger.recent(stage.database, 2)]
    assert origins == ["schedule", "nobody's job"]


def test_more_than_one_run_may_do_is_done_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "Sweep", partial(Sweep, most=2))
    packages = [stage.publish() for _ in range(5)]
    stage.forget_log()
    declare(stage)
    come_now(stage)
    with instances(stage, "one"):
        eventually(lambda: states(stage) == ["SUCCEEDED"] * 3)
    assert not any(map(stage.has, packages))
