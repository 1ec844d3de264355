"""Schedules are declared by programs and changed by people, and neither undoes the other."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from packhorse.jobs.declaring import Declarations, Declared
from packhorse.jobs.queue import QueueConfiguration
from packhorse.jobs.scheduling.definition import (
    EventAction,
    JobAction,
    Missed,
    RunOn,
    Schedule,
    ScheduleDefinition,
)
from packhorse.jobs.scheduling.errors import (
    InvalidSchedule,
    ScheduleChanged,
    ScheduleExists,
    UnknownSchedule,
)
from packhorse.jobs.scheduling.store import (
    create_schedule,
    declare_schedule,
    get_schedule,
    list_schedules,
    lock_schedule,
    remove_schedule,
    replace_schedule,
    suspend_schedule,
)
from packhorse.jobs.scheduling.timing import At, Cron, Every
from packhorse.jobs.store.adding import add_job
from packhorse.jobs.store.given import NewJob
from tests.harness.jobs.schedules import Schedules, definition
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def site(database_url: str) -> Schedules:
    return Schedules(database_url)


def declare(site: Schedules, wanted: ScheduleDefinition) -> Schedule:
    with site.transaction() as connection:
        return declare_schedule(connection, wanted)


def change(site: Schedules, wanted: ScheduleDefinition, version: int | None = None) -> Schedule:
    with site.transaction() as connection:
        return replace_schedule(connection, wanted, version=version)


def suspend(site: Schedules, suspended: bool, version: int | None = None) -> Schedule:
    with site.transaction() as connection:
        return suspend_schedule(connection, "test", suspended=suspended, version=version)


@pytest.mark.parametrize(
    "wanted",
    [
        definition(),
        definition(when=At(FAR), description="once", missed=Missed.SKIP),
        definition(when=Every(timedelta(days=40, seconds=7.25)), not_before=FAR, times=3),
        definition(
            when=Cron("30 2 * * mon", "Europe/Berlin"),
            action=JobAction("a/b", {"deep": {"list": [1, 2.5, None, "ü"]}}, -7),
            run_on=RunOn.LEADER,
            concurrent=False,
            missed=Missed.ALL,
            missed_limit=5,
            suspended=True,
        ),
        definition(action=EventAction("a/b", {"x": True}), run_on=RunOn.ALL),
    ],
)
def test_a_schedule_is_stored_as_it_was_given(site: Schedules, wanted: ScheduleDefinition) -> None:
    with site.transaction() as connection:
        made = create_schedule(connection, wanted, origin="me")
    assert made.definition == wanted
    assert site.stored() == made
    assert (made.origin, made.version, made.changed, made.last_fire_time) == ("me", 1, False, None)
    assert made.times_left == wanted.times
    assert made.next_fire_time is not None


def test_a_name_is_given_once_and_what_is_not_there_is_reported(site: Schedules) -> None:
    site.create()
    with pytest.raises(ScheduleExists), site.transaction() as connection:
        create_schedule(connection, definition(), origin="other")
    with pytest.raises(UnknownSchedule), site.transaction() as connection:
        get_schedule(connection, "none")
    with pytest.raises(UnknownSchedule), site.transaction() as connection:
        remove_schedule(connection, "none")


def test_a_moment_that_has_passed_is_refused(site: Schedules) -> None:
    past = At(site.moment - timedelta(seconds=1))
    with pytest.raises(InvalidSchedule, match="has passed"):
        site.create(when=past)
    site.create()
    with pytest.raises(InvalidSchedule, match="has passed"):
        change(site, definition(when=past))


def test_declaring_again_changes_nothing(site: Schedules) -> None:
    wanted = definition(action=JobAction("a/b", {"tuple": (1, 2)}))
    first = declare(site, wanted)
    assert declare(site, wanted) == first


def test_a_property_of_another_type_is_a_new_definition(site: Schedules) -> None:
    first = declare(site, definition(action=JobAction("a/b", {"x": 1})))
    now = declare(site, definition(action=JobAction("a/b", {"x": True})))
    assert (now.version, now.definition.action.properties["x"]) == (first.version + 1, True)
    assert site.stored().definition.action.properties["x"] is True


def test_a_new_definition_of_the_program_is_followed(site: Schedules) -> None:
    declare(site, definition())
    now = declare(site, definition(when=Every(timedelta(hours=2))))
    assert now.definition.when == Every(timedelta(hours=2))
    assert now.next_fire_time is not None
    assert now.next_fire_time > site.moment + timedelta(minutes=119)
    assert (now.version, now.changed) == (2, False)


def test_what_somebody_has_changed_no_program_changes_back(site: Schedules) -> None:
    declare(site, definition())
    changed = change(site, definition(when=Every(timedelta(minutes=5))))
    assert changed.changed
    assert declare(site, definition(when=Every(timedelta(hours=3)))) == changed


def test_suspending_outlives_a_new_declaration_which_is_followed_otherwise(
    site: Schedules,
) -> None:
    declare(site, definition())
    assert suspend(site, True).definition.suspended
    now = declare(site, definition(description="new"))
    assert (now.definition.suspended, now.definition.description) == (True, "new")


def test_a_schedule_that_somebody_made_is_not_declared_over(site: Schedules) -> None:
    made = site.create()
    assert declare(site, definition(description="other")) == made


def test_a_version_that_was_overtaken_changes_nothing(site: Schedules) -> None:
    first = site.create()
    second = change(site, definition(description="2"), version=first.version)
    with pytest.raises(ScheduleChanged, match="is of version 2, not 1"):
        change(site, definition(description="3"), version=first.version)
    with pytest.raises(ScheduleChanged):
        suspend(site, True, version=first.version)
    with pytest.raises(ScheduleChanged), site.transaction() as connection:
        remove_schedule(connection, "test", version=first.version)
    assert site.stored() == second


def test_a_change_that_is_not_about_time_leaves_the_next_moment(site: Schedules) -> None:
    first = site.create(times=5)
    again = change(site, replace(first.definition, description="other"))
    assert (again.next_fire_time, again.times_left) == (first.next_fire_time, 5)
    assert change(site, replace(first.definition, times=7)).times_left == 7


def test_what_came_while_it_was_suspended_is_not_missed(site: Schedules) -> None:
    site.create()
    suspend(site, True)
    with site.transaction() as connection:  # as if hours had passed
        connection.execute("UPDATE jobs.schedule SET next_tick = next_tick - interval '9 hours'")
    resumed = suspend(site, False)
    assert resumed.next_fire_time is not None
    assert resumed.next_fire_time > site.moment
    assert suspend(site, False) == resumed


def test_a_single_moment_that_came_while_it_was_suspended_is_still_there(
    site: Schedules,
) -> None:
    made = site.create(when=At(FAR))
    suspend(site, True)
    assert suspend(site, False).next_fire_time == made.next_fire_time


def test_pages_by_name(site: Schedules) -> None:
    for name in ("b", "a", "c", "B"):
        site.create(name)
    with site.transaction() as connection:
        page = list_schedules(connection, limit=2)
        rest = list_schedules(connection, after=page[-1].name)
        remove_schedule(connection, "a")
        left = list_schedules(connection)
    assert [one.name for one in page + rest] == ["B", "a", "b", "c"]
    assert [one.name for one in left] == ["B", "b", "c"]


def test_a_declaration_that_waits_for_a_fire_time_keeps_no_queue_from_it(site: Schedules) -> None:
    """Else both wait for each other, and a program that starts just then dies of it."""
    declare(site, definition())
    declared = Declared([QueueConfiguration("own", ("own/*",))], [definition(description="new")])
    declarations = Declarations(lambda: psycopg.connect(site.url), declared)
    with site.transaction() as connection:
        lock_schedule(connection, "test", None)
        declarations.start()
        try:
            eventually(lambda: waiting_for_locks(site.url))
            connection.execute("SET LOCAL lock_timeout = '500ms'")
            assert add_job(connection, "tests", NewJob("own/a")).job.queue == "own"
            connection.commit()
            eventually(declarations.done.is_set)
        finally:
            declarations.stop(60)
    with site.transaction() as connection:
        assert get_schedule(connection, "test").definition.description == "new"
