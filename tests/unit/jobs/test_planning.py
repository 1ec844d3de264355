"""Which moments fire: missed ones by policy, periods and cron expressions, clocks that jump."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.jobs.scheduling.definition import (
    JobAction,
    Missed,
    ScheduleDefinition,
    require_schedule,
)
from packhorse.jobs.scheduling.planning import (
    MOST_COUNTED,
    ON_TIME,
    FiringPlan,
    first_fire_time,
    plan,
    replan,
)
from packhorse.jobs.scheduling.timing import At, Cron, Every, When
from tests.harness.depth import examples

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HOURLY = Cron("0 * * * *")


def schedule(when: When, **given: Any) -> ScheduleDefinition:
    return require_schedule(ScheduleDefinition("test", when, JobAction("a/b"), **given))


@pytest.mark.parametrize(
    ("when", "first"),
    [
        (HOURLY, NOON + HOUR),
        (Every(7 * MINUTE), NOON + 7 * MINUTE),
        (At(NOON + DAY), NOON + DAY),
        (At(NOON - DAY), NOON - DAY),
    ],
)
def test_the_first_moment(when: When, first: datetime) -> None:
    assert first_fire_time(schedule(when), NOON) == first


def test_not_before_is_the_first_moment_of_a_period_and_may_be_one_of_cron() -> None:
    assert first_fire_time(schedule(Every(HOUR), not_before=NOON + DAY), NOON) == NOON + DAY
    assert first_fire_time(schedule(HOURLY, not_before=NOON + DAY), NOON) == NOON + DAY
    later = schedule(HOURLY, not_before=NOON + DAY + MINUTE)
    assert first_fire_time(later, NOON) == NOON + DAY + HOUR
    assert first_fire_time(schedule(Every(HOUR), not_before=NOON - DAY), NOON) == NOON + HOUR


def test_what_is_not_due_waits() -> None:
    assert plan(schedule(HOURLY), NOON + HOUR, NOON) == FiringPlan((), 0, None, NOON + HOUR)


@pytest.mark.parametrize("missed", Missed)
def test_one_moment_in_time_fires_whatever_the_policy(missed: Missed) -> None:
    late = NOON + ON_TIME
    planned = plan(schedule(HOURLY, missed=missed), NOON, late)
    assert planned == FiringPlan((NOON,), 0, None, NOON + HOUR)


def test_missed_moments_are_skipped_or_made_up_for_once_or_up_to_a_number() -> None:
    now = NOON + 5 * HOUR + 10 * MINUTE
    skip = plan(schedule(HOURLY, missed=Missed.SKIP), NOON, now)
    assert skip == FiringPlan((), 6, NOON + 5 * HOUR, NOON + 6 * HOUR)
    once = plan(schedule(HOURLY, missed=Missed.ONCE), NOON, now)
    assert once == FiringPlan((NOON + 5 * HOUR,), 5, None, NOON + 6 * HOUR)
    three = plan(schedule(HOURLY, missed=Missed.ALL, missed_limit=3), NOON, now)
    assert three.fire == tuple(NOON + hours * HOUR for hours in (3, 4, 5))
    assert (three.missed, three.next_fire_time) == (3, NOON + 6 * HOUR)
    every = plan(schedule(HOURLY, missed=Missed.ALL, missed_limit=100), NOON, now)
    assert (len(every.fire), every.missed) == (6, 0)


def test_the_newest_of_several_moments_fires_in_time_though_the_others_are_skipped() -> None:
    planned = plan(schedule(HOURLY, missed=Missed.SKIP), NOON, NOON + 2 * HOUR)
    assert planned == FiringPlan((NOON + 2 * HOUR,), 2, None, NOON + 3 * HOUR)


def test_a_period_keeps_its_pace_after_a_delay() -> None:
    planned = plan(schedule(Every(10 * MINUTE)), NOON, NOON + 34 * MINUTE)
    assert planned.fire == (NOON + 30 * MINUTE,)
    assert (planned.missed, planned.next_fire_time) == (3, NOON + 40 * MINUTE)


def test_a_single_moment_fires_once_and_there_is_no_next_one() -> None:
    assert plan(schedule(At(NOON)), NOON, NOON + DAY) == FiringPlan((NOON,), 0, None, None)
    skipped = plan(schedule(At(NOON), missed=Missed.SKIP), NOON, NOON + DAY)
    assert skipped == FiringPlan((), 1, NOON, None)


@pytest.mark.parametrize("when", [Cron("* * * * *"), Every(timedelta(seconds=1))])
def test_years_of_missed_moments_are_not_gone_through(when: When) -> None:
    limited = schedule(when, missed=Missed.ALL, missed_limit=100)
    planned = plan(limited, NOON - 3650 * DAY, NOON)
    assert len(planned.fire) == 100
    assert planned.fire[-1] == NOON
    assert planned.missed >= MOST_COUNTED - 100


@settings(max_examples=examples(40), deadline=None)
@given(
    expression=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */5 * * mon", "15 1,2,3 * * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    hours=st.lists(st.floats(0.01, 200), min_size=1, max_size=10),
    days=st.floats(0, 330),
)
def test_whoever_looks_whenever_no_moment_fires_twice_and_each_is_fired_or_missed(
    expression: str, zone: str, hours: list[float], days: float
) -> None:
    definition = schedule(Cron(expression, zone), missed=Missed.ALL, missed_limit=100)
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days)
    following, fired, missed = first_fire_time(definition, now), list[datetime](), 0
    for pause in hours:
        now += timedelta(hours=pause)
        assert following is not None
        planned = plan(definition, following, now)
        fired, missed = [*fired, *planned.fire], missed + planned.missed
        following = planned.next_fire_time
    assert fired == sorted(set(fired))
    assert missed == 0 or len(fired) >= 100


def test_a_clock_that_went_back_an_hour_does_not_hold_up_a_period() -> None:
    following = NOON + HOUR + 5 * MINUTE  # planned when the clock said 13:00
    assert replan(schedule(Every(5 * MINUTE)), following, NOON) == NOON + 5 * MINUTE
    assert replan(schedule(Every(5 * MINUTE)), NOON + MINUTE, NOON) == NOON + MINUTE


def test_a_clock_that_went_back_an_hour_brings_moments_of_cron_again() -> None:
    assert replan(schedule(Cron("*/5 * * * *")), NOON + HOUR, NOON) == NOON + 5 * MINUTE
    later = schedule(Cron("*/5 * * * *"), not_before=NOON + HOUR)
    assert replan(later, NOON + HOUR, NOON) == NOON + HOUR


def test_a_clock_that_went_back_changes_nothing_for_a_single_moment() -> None:
    assert replan(schedule(At(NOON + DAY)), NOON + DAY, NOON) == NOON + DAY


def test_a_clock_that_went_on_by_an_hour_fires_each_schedule_once() -> None:
    jumped = NOON + HOUR
    assert plan(schedule(Every(5 * MINUTE)), NOON + MINUTE, jumped).fire == (NOON + 56 * MINUTE,)
    assert plan(schedule(HOURLY), NOON + HOUR, jumped).fire == (NOON + HOUR,)
