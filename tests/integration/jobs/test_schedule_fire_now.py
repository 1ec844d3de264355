"""Schedules that somebody fires, beside the moments that are planned."""

import threading

import pytest

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.scheduling.definition import EventAction, FireTime, FireTimeOutcome, RunOn
from packhorse.jobs.scheduling.errors import InstancesUnknown, ScheduleChanged, UnknownSchedule
from packhorse.jobs.scheduling.firing import Firer, fire_now
from tests.harness.jobs.schedules import Schedules

EVERYTHING = HandledTopics(("**",))
ME = Firer("me")


@pytest.fixture
def site(database_url: str) -> Schedules:
    return Schedules(database_url)


def fired(site: Schedules, firer: Firer = ME, version: int | None = None) -> FireTime:
    with site.transaction() as connection:
        return fire_now(connection, "test", firer, version=version)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_job_is_added_and_the_plan_stays(site: Schedules, suspended: bool) -> None:
    before = site.create(times=1, suspended=suspended)
    fire_time = fired(site)
    assert (fire_time.outcome, len(fire_time.jobs), fire_time.instance) == (
        FireTimeOutcome.FIRED,
        1,
        "me",
    )
    assert site.fire_times() == [fire_time]
    assert site.stored() == before
    assert site.jobs() == [("test", "", 0)]


def test_it_is_skipped_while_a_job_is_not_done(site: Schedules) -> None:
    site.create(concurrent=False)
    assert fired(site).outcome is FireTimeOutcome.FIRED
    again = fired(site)
    assert (again.outcome, again.jobs) == (FireTimeOutcome.SKIPPED, ())
    assert "not done" in again.reason
    site.fire_at(site.next_fire_time())
    assert [fire_time.outcome for fire_time in site.fire_times()].count(
        FireTimeOutcome.SKIPPED
    ) == 2
    site.finish_jobs()
    assert fired(site).outcome is FireTimeOutcome.FIRED


def test_the_leaders_job_waits_for_the_leader_whoever_asks(site: Schedules) -> None:
    site.create(run_on=RunOn.LEADER)
    fired(site)
    assert site.jobs() == [("test", "@leader", 0)]


def test_all_live_instances_get_a_job_and_nobody_guesses_who_lives(site: Schedules) -> None:
    site.create(run_on=RunOn.ALL)
    with pytest.raises(InstancesUnknown):
        fired(site)
    fired(site, Firer("me", {"a": EVERYTHING, "b": EVERYTHING, "c": HandledTopics()}))
    assert [only_on for _, only_on, _ in site.jobs()] == ["a", "b"]


def test_an_event_is_sent(site: Schedules) -> None:
    site.create(action=EventAction("test/event", {"a": 1}))
    fired(site)
    with site.transaction() as connection:
        [row] = connection.execute("SELECT topic, application FROM jobs.event").fetchall()
    assert row == ("test/event", "me")


def test_only_what_is_there_and_was_seen_is_fired(site: Schedules) -> None:
    with pytest.raises(UnknownSchedule):
        fired(site)
    site.create()
    with pytest.raises(ScheduleChanged):
        fired(site, version=2)
    assert site.jobs() == []


def test_a_scheduler_and_who_asks_do_not_both_start_what_is_not_concurrent(
    site: Schedules,
) -> None:
    site.create(concurrent=False)
    site.moment = site.next_fire_time()
    with site.transaction() as connection:
        fire_now(connection, "test", Firer("me"))
        looks = threading.Thread(target=site.scheduler().fire_due)
        looks.start()
        looks.join(120)
        assert not looks.is_alive(), "a schedule that somebody fires is passed over"
    site.scheduler().fire_due()
    assert len(site.jobs()) == 1
