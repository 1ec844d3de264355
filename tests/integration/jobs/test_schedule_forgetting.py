"""Old moments and schedules that have ended are forgotten, no others."""

from datetime import timedelta

import pytest

from packhorse.jobs.scheduling.forgetting import forget_ended, forget_fire_times
from packhorse.jobs.scheduling.store import declare_schedule, list_schedules
from packhorse.jobs.scheduling.timing import At
from tests.harness.jobs.schedules import Schedules, definition

SECOND = timedelta(seconds=1)


@pytest.fixture
def site(database_url: str) -> Schedules:
    return Schedules(database_url)


def age(site: Schedules, days: int) -> None:
    """Let everything be so much older."""
    with site.transaction() as connection:
        connection.execute(
            "UPDATE jobs.tick SET decided_at = decided_at - make_interval(days => %s)", (days,)
        )
        connection.execute(
            "UPDATE jobs.schedule SET last_tick = last_tick - make_interval(days => %s), "
            "updated_at = updated_at - make_interval(days => %s)",
            (days, days),
        )


def test_moments_are_forgotten_a_month_after_they_were_decided(site: Schedules) -> None:
    site.create()
    site.fire_at(site.next_fire_time())
    age(site, 31)
    site.fire_at(site.next_fire_time())
    with site.transaction() as connection:
        assert [forget_fire_times(connection, limit=1) for _ in range(2)] == [1, 0]
    assert len(site.fire_times()) == 1


def test_schedules_that_ended_go_but_not_those_that_programs_declare(site: Schedules) -> None:
    moment = site.moment + SECOND * 60
    site.create("once", At(moment))
    site.create("more")
    with site.transaction() as connection:
        declare_schedule(connection, definition("declared", At(moment)))
    site.fire_at(moment)
    with site.transaction() as connection:
        assert forget_ended(connection) == 0
    age(site, 31)
    with site.transaction() as connection:
        assert forget_ended(connection) == 1
        assert [one.name for one in list_schedules(connection)] == ["declared", "more"]
