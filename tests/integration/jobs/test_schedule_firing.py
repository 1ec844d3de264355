"""What fires, once whoever looks: jobs and events, policies, clocks that jump, kills."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.scheduling import firing, scheduler
from packhorse.jobs.scheduling.definition import EventAction, JobAction, Missed, RunOn, Schedule
from packhorse.jobs.scheduling.scheduler import POLL_S
from packhorse.jobs.scheduling.store import remove_schedule, suspend_schedule
from packhorse.jobs.scheduling.timing import At, Cron, Every
from tests.harness.grown import growth
from tests.harness.jobs.schedules import Schedules

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERYTHING = HandledTopics(("**",))


@pytest.fixture
def site(database_url: str) -> Schedules:
    return Schedules(database_url)


def test_nothing_fires_before_its_time_and_the_pause_ends_at_it(site: Schedules) -> None:
    site.create()
    assert site.fire_at(site.next_fire_time() - 2 * SECOND) == 2.0
    assert site.fire_at(site.next_fire_time() - HOUR) == POLL_S
    assert (site.jobs(), site.fire_times()) == ([], [])


def test_a_moment_adds_one_job_whoever_looks_and_however_often(site: Schedules) -> None:
    fire_time = site.create(action=JobAction("test/job", {"x": 1}, 7)).next_fire_time
    assert fire_time is not None
    for instance in ("one", "two", "one"):
        site.fire_at(fire_time + SECOND, instance)
    assert site.jobs() == [("test", "", 7)]
    [done] = site.fire_times()
    assert (done.fire_time, done.outcome, done.instance, done.missed) == (
        fire_time,
        "FIRED",
        "one",
        0,
    )
    assert len(done.jobs) == 1
    assert site.next_fire_time() == fire_time + HOUR
    assert site.stored().last_fire_time == fire_time


def many_look_at_once(site: Schedules) -> None:
    """Let eight schedulers look at each of ten moments at the same time."""
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            site.moment = site.next_fire_time()
            lookers = [site.scheduler(f"i{n}") for n in range(8)]
            list(pool.map(lambda one: one.fire_due(), lookers))


def test_of_many_that_look_at_once_one_fires(site: Schedules) -> None:
    site.create()
    many_look_at_once(site)
    assert len(site.jobs()) == 10
    assert len(site.fire_times()) == 10


@pytest.mark.proof
def test_a_broken_build_that_locks_nothing_and_has_no_key_fires_twice(
    site: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create()
    with psycopg.connect(site.url) as connection:
        connection.execute("ALTER TABLE jobs.tick DROP CONSTRAINT tick_pkey")
    monkeypatch.setattr(firing, "_LOCKED", "")
    monkeypatch.setattr(firing._Firing, "_is_decided", lambda *_: False)
    all_have_looked, next_due = threading.Barrier(8), scheduler.next_due

    def together(*given: Any) -> Schedule | None:
        schedule = next_due(*given)
        if schedule is not None:
            all_have_looked.wait(120)
        return schedule

    monkeypatch.setattr(scheduler, "next_due", together)
    many_look_at_once(site)
    assert len(site.jobs()) == 80


def test_an_event_is_stored_for_all_and_for_the_instance_that_sends_it(site: Schedules) -> None:
    site.create(action=EventAction("a/b", {"x": 1}))
    site.fire_at(site.next_fire_time())
    with site.transaction() as connection:
        rows = connection.execute(
            "SELECT topic, application, properties, echo FROM jobs.event WHERE topic = 'a/b'"
        ).fetchall()
    assert rows == [("a/b", "one", {"x": 1}, True)]


def test_all_adds_a_job_for_every_live_instance_with_a_consumer(site: Schedules) -> None:
    site.create(run_on=RunOn.ALL)
    fire_time = site.next_fire_time()
    assert site.fire_at(fire_time) == POLL_S  # no view: it waits
    assert site.next_fire_time() == fire_time
    members = {
        "one": HandledTopics(("test/*",)),
        "two": EVERYTHING,
        "three": HandledTopics(("other",)),
    }
    site.fire_at(fire_time, members=members)
    assert site.jobs() == [("test", "one", 0), ("test", "two", 0)]
    site.fire_at(fire_time + HOUR, members={"three": HandledTopics(("other",))})
    assert [one.outcome for one in site.fire_times()] == ["FIRED", "SKIPPED"]
    assert "no live instance has a consumer for test/job" in site.fire_times()[-1].reason


def test_what_is_not_concurrent_waits_for_the_job_before_it(site: Schedules) -> None:
    site.create(concurrent=False)
    first = site.next_fire_time()
    for number in range(3):
        site.fire_at(first + number * HOUR)
    assert [one.outcome for one in site.fire_times()] == ["FIRED", "SKIPPED", "SKIPPED"]
    assert len(site.jobs()) == 1
    site.finish_jobs()
    site.fire_at(first + 3 * HOUR)
    assert site.fire_times()[-1].outcome == "FIRED"


def test_what_is_not_concurrent_on_all_waits_for_each_instance(site: Schedules) -> None:
    site.create(concurrent=False, run_on=RunOn.ALL)
    first = site.next_fire_time()
    site.fire_at(first, members={"one": EVERYTHING})
    site.fire_at(first + HOUR, members={"one": EVERYTHING, "two": EVERYTHING})
    assert site.jobs() == [("test", "one", 0), ("test", "two", 0)]


def test_what_is_not_concurrent_on_all_waits_however_often_others_have_fired(
    site: Schedules,
) -> None:
    site.create(concurrent=False, run_on=RunOn.ALL)
    first = site.next_fire_time()
    site.fire_at(first, members={"slow": EVERYTHING})
    for number in range(1, 13):
        site.fire_at(first + number * HOUR, members={"slow": EVERYTHING, "quick": EVERYTHING})
        with site.transaction() as connection:
            connection.execute("DELETE FROM jobs.job WHERE only_on = 'quick'")
    assert site.jobs() == [("test", "slow", 0)]


def test_what_nobody_fired_is_made_up_for_by_policy(site: Schedules) -> None:
    for name, missed in (("skip", Missed.SKIP), ("once", Missed.ONCE), ("all", Missed.ALL)):
        site.create(name, missed=missed, missed_limit=2)
    first = max(site.next_fire_time(name) for name in ("skip", "once", "all"))
    site.fire_at(first + 4 * HOUR + 2 * MINUTE)
    assert [row[1:] for row in site.reported("skip")] == [("MISSED", 4)]
    assert [row[1:] for row in site.reported("once")] == [("FIRED", 4)]
    assert [row[1:] for row in site.reported("all")] == [("FIRED", 3), ("FIRED", 0)]
    assert sorted(row[0] for row in site.jobs()) == ["all", "all", "once"]


def test_what_fires_and_what_is_missed_is_counted(site: Schedules) -> None:
    fire_times, lateness = "schedule_fire_times_total", "schedule_lateness_seconds"
    grown = growth(
        (fire_times, {"outcome": "FIRED"}),
        (fire_times, {"outcome": "MISSED"}),
        (f"{lateness}_count", {}),
        (f"{lateness}_sum", {}),
    )
    site.create(missed=Missed.ONCE)
    site.fire_at(site.next_fire_time() + 4 * HOUR + 2 * MINUTE)
    assert grown() == [1, 4, 1, 120]


def test_after_so_many_times_it_has_ended(site: Schedules) -> None:
    site.create(times=2)
    for _ in range(2):
        site.fire_at(site.next_fire_time())
    assert (site.stored().next_fire_time, site.stored().times_left) == (None, 0)
    assert len(site.jobs()) == 2
    moment = At(site.moment + HOUR)
    site.create("once", moment)
    site.fire_at(moment.moment)
    assert site.stored("once").next_fire_time is None


def test_what_is_suspended_does_not_fire(site: Schedules) -> None:
    site.create()
    with site.transaction() as connection:
        suspend_schedule(connection, "test")
    site.fire_at(site.next_fire_time() + HOUR)
    assert site.jobs() == []


def test_one_that_can_not_fire_does_not_keep_others_from_it(site: Schedules) -> None:
    site.create("a-broken")
    site.create("b-good")
    with site.transaction() as connection:
        connection.execute("UPDATE jobs.schedule SET topic = 'no topic' WHERE name = 'a-broken'")
    site.fire_at(site.next_fire_time("b-good") + SECOND)
    assert site.jobs() == [("b-good", "", 0)]


@pytest.mark.parametrize("why", ["lock_not_available", "check_violation", "disk_full"])
def test_one_that_the_database_refuses_does_not_keep_others_from_it(
    site: Schedules, why: str
) -> None:
    site.create("a-broken", action=JobAction("test/broken"))
    site.create("b-good")
    with psycopg.connect(site.url) as connection:
        connection.execute(
            f"""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{why}'; END $$;
            CREATE TRIGGER refuse BEFORE INSERT ON jobs.job FOR EACH ROW
                WHEN (NEW.topic = 'test/broken') EXECUTE FUNCTION refuse();
            """
        )
    site.fire_at(site.next_fire_time("b-good") + SECOND)
    assert site.jobs() == [("b-good", "", 0)]
    assert site.fire_times("a-broken") == []
    with psycopg.connect(site.url) as connection:
        connection.execute("DROP TRIGGER refuse ON jobs.job")
    site.fire_at(site.moment)
    assert site.jobs() == [("b-good", "", 0), ("a-broken", "", 0)]


def test_a_clock_an_hour_ahead_and_set_right_fires_no_moment_twice(site: Schedules) -> None:
    start = datetime(2031, 5, 5, 10, 58, tzinfo=UTC)
    site.create("cron", Cron("*/15 * * * *"), not_before=start)
    site.create("period", Every(10 * MINUTE), not_before=start)
    moments = [start + n * MINUTE for n in (0, 2, 4)]
    jumped = [one + HOUR for one in moments]  # somebody sets the clock, and sets it back
    for moment in (*moments, *jumped, *(start + n * MINUTE for n in range(6, 90, 2))):
        site.fire_at(moment)
    cron = [fire_time for fire_time, outcome, _ in site.reported("cron") if outcome == "FIRED"]
    assert cron == sorted(set(cron))
    assert cron == [start + n * MINUTE for n in (2, 17, 32, 47, 62, 77)]
    period = [fire_time for fire_time, outcome, _ in site.reported("period") if outcome == "FIRED"]
    in_time = [fire_time for fire_time in period if fire_time < jumped[0] or fire_time > jumped[-1]]
    assert max(later - earlier for earlier, later in pairwise(in_time)) <= 20 * MINUTE
    assert len(site.jobs()) == len(cron) + len(period)


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2031-03-29T00:00", ["29T01:30", "30T01:00", "31T00:30"]),
        ("Europe/Berlin", "30 2 * * *", "2031-10-25T00:00", ["25T00:30", "26T00:30", "27T01:30"]),
        (
            "America/New_York",
            "30 2 * * *",
            "2031-03-08T00:00",
            ["08T07:30", "09T07:00", "10T06:30"],
        ),
        (
            "America/New_York",
            "30 1 * * *",
            "2031-11-01T00:00",
            ["01T05:30", "02T05:30", "03T06:30"],
        ),
        ("Australia/Lord_Howe", "15 2 * * *", "2031-10-04T00:00", ["04T15:30", "05T15:15"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2031-04-05T00:00", ["05T14:45", "06T15:15"]),
    ],
)
def test_a_time_of_day_fires_once_when_the_clocks_change(
    site: Schedules, zone: str, expression: str, start: str, expected: list[str]
) -> None:
    now = datetime.fromisoformat(start + "+00:00")
    site.create(when=Cron(expression, zone), not_before=now)
    for minutes in range(0, 54 * 60, 60):
        site.fire_at(now + minutes * MINUTE, f"i{minutes % 180}")
    fired = [one.fire_time.astimezone(UTC).strftime("%dT%H:%M") for one in site.fire_times()]
    assert fired == expected[: len(fired)]
    assert len(fired) >= 2
    assert len(site.jobs()) == len(fired)


def test_the_jobs_of_a_schedule_that_wait_go_with_it(site: Schedules, database_url: str) -> None:
    site.create(action=JobAction("test/job"))
    site.create("other", action=JobAction("test/job"))
    for _ in range(2):
        site.fire_at(site.next_fire_time() + SECOND)
    assert len(site.jobs()) == 4
    with site.transaction() as connection:
        remove_schedule(connection, "test")
    assert [schedule for schedule, *_ in site.jobs()] == ["other"] * 2
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT state, result_message FROM jobs.finished WHERE schedule = 'test'"
        )
        assert rows.fetchall() == [("DROPPED", "its schedule was removed")] * 2
