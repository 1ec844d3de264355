"""When schedules are due: time zones whose clocks change, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.jobs.scheduling.timing import (
    At,
    Cron,
    Every,
    When,
    period_text,
    require_timing,
    times_after,
)
from tests.harness.depth import examples

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
HOUR = timedelta(hours=1)
NAIVE = datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def times(expression: str, zone: str, after: str, number: int) -> list[str]:
    """Return times as that zone's clocks show them; `after` is in UTC."""
    moments = times_after(Cron(expression, zone), datetime.fromisoformat(after + "+00:00"))
    shown = (moment.astimezone(ZoneInfo(zone)) for moment in islice(moments, number))
    return [moment.strftime("%d %H:%M%z") for moment in shown]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # The clocks leave out 02:00 to 03:00 (02:00 to 02:30 on Lord Howe): right after the gap.
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["29 03:00+0200", "30 02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", ["08 03:00-0400", "09 02:30-0400"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T06:00", ["04 02:30+1100", "05 02:15+1100"]),
        # They show an hour (half an hour) twice: the first time.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["25 02:30+0200", "26 02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", ["01 01:30-0400", "02 01:30-0500"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-04T06:00", ["05 01:45+1100", "06 01:45+1030"]),
    ],
)
def test_a_time_of_day_comes_once_on_days_on_which_clocks_change(
    expression: str, zone: str, after: str, expected: list[str]
) -> None:
    assert times(expression, zone, after, 2) == expected


@pytest.mark.parametrize("start", ["2026-10-25T00:29", "2026-10-25T00:45", "2026-10-25T01:15"])
def test_a_time_of_day_is_not_repeated_by_who_looks_during_the_repeated_hour(
    start: str,
) -> None:
    first = times("30 2 * * *", BERLIN, start, 1)
    assert first == (["25 02:30+0200"] if start.endswith("29") else ["26 02:30+0100"])


@pytest.mark.parametrize(
    ("zone", "month"),  # in which its clocks change
    [
        *((BERLIN, 3), (BERLIN, 10), (NEW_YORK, 3), (NEW_YORK, 11)),
        *((LORD_HOWE, 4), (LORD_HOWE, 10), ("UTC", 3)),
    ],
)
def test_what_repeats_within_the_hour_goes_by_the_time_that_passes(zone: str, month: int) -> None:
    start = datetime(2026, month, 1, tzinfo=UTC)
    moments = list(islice(times_after(Cron("*/15 * * * *", zone), start), 31 * 96))
    assert moments == [start + index * HOUR / 4 for index in range(1, 31 * 96 + 1)]


@settings(max_examples=examples(60), deadline=None)
@given(
    zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "Antarctica/Troll", "Africa/Casablanca"]),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    days=st.floats(0, 730),
)
def test_a_time_of_day_comes_once_on_every_date_wherever_one_begins_to_look(
    zone: str, hour: int, minute: int, days: float
) -> None:
    cron = Cron(f"{minute} {hour} * * *", zone)
    start = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days)
    moments = list(islice(times_after(cron, start), 200))
    dates = [moment.astimezone(ZoneInfo(zone)).date() for moment in moments]
    assert dates == [dates[0] + timedelta(days=index) for index in range(200)]
    later = moments[len(moments) // 2]
    assert next(times_after(cron, later)) == moments[len(moments) // 2 + 1]
    assert next(times_after(cron, later - timedelta(microseconds=1))) == later


@pytest.mark.parametrize(
    ("when", "reported"),
    [
        (Cron("0 0 30 2 *"), "no such day of the month"),
        (Cron("0 0 31 2,4,6,9,11 *"), "no such day of the month"),
        (Cron("0 0 */29 2 mon#5"), "it never fires"),
        (Cron("0 0 */30 2 *#5"), "wrong"),
        (Cron("60 * * * *"), "wrong minute"),
        (Cron("* 24 * * *"), "wrong hour"),
        (Cron("* * * *"), "it has 4 fields"),
        (Cron("* * * * * *"), "it has 6 fields"),
        (Cron("@daily"), "five fields"),
        (Cron(""), "it has 0 fields"),
        (Cron("1" * 256), "at most 255 characters"),
        (Cron("\u0661 * * * *"), "wrong minute"),
        (Cron("0 0 * * *", "Mars/Base"), "is no time zone"),
        (Cron("0 0 * * *", "../../etc/passwd"), "is no time zone"),
        (Cron("0 0 * * *", ""), "is no time zone"),
        (Every(timedelta(seconds=0.9)), "the period is 0.9 s"),
        (Every(timedelta(seconds=-5)), "the period is -5 s"),
        (Every(timedelta(days=4000)), "3660 days"),
        (At(NAIVE), "needs an offset from UTC"),
        (At(datetime(9999, 1, 1, tzinfo=UTC)), "before the year 9000"),
        (At(datetime(1, 1, 1, tzinfo=UTC)), "before the year 9000"),
    ],
)
def test_what_never_comes_and_what_is_no_time_is_refused(when: When, reported: str) -> None:
    with pytest.raises(InvalidSchedule, match=reported):
        require_timing(when)


def test_a_rare_date_is_found() -> None:
    require_timing(Cron("0 0 29 2 *"))
    found = list(islice(times_after(Cron("0 0 29 2 *"), datetime(2096, 3, 1, tzinfo=UTC)), 2))
    assert [moment.year for moment in found] == [2104, 2108]


@pytest.mark.parametrize(
    ("period", "reported"),
    [
        (timedelta(hours=12), "12 h"),
        (timedelta(minutes=90), "1 h 30 min"),
        (timedelta(days=1), "1 day"),
        (timedelta(days=3, minutes=1, seconds=0.5), "3 days 1 min 0.5 s"),
        (timedelta(seconds=90), "1 min 30 s"),
    ],
)
def test_a_period_does_not_look_like_a_time_of_day(period: timedelta, reported: str) -> None:
    assert period_text(period) == reported
