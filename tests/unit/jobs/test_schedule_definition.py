"""What no schedule may be, and that the refusal says what is wrong."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from packhorse.errors import Permanent
from packhorse.jobs.names import InvalidName, InvalidProperties
from packhorse.jobs.scheduling.definition import (
    EventAction,
    JobAction,
    ScheduleDefinition,
    require_schedule,
)
from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.jobs.scheduling.timing import At, Every

HOURLY = Every(timedelta(hours=1))
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def definition(**given: Any) -> ScheduleDefinition:
    fields: dict[str, Any] = {"name": "test", "when": HOURLY, "action": JobAction("a/b"), **given}
    return ScheduleDefinition(**fields)


@pytest.mark.parametrize(
    ("given", "error", "reported"),
    [
        ({"name": "a b"}, InvalidName, "no name of a schedule"),
        ({"name": ""}, InvalidName, "no name of a schedule"),
        ({"action": JobAction("a b")}, InvalidName, "no topic"),
        ({"action": JobAction("a/*")}, InvalidName, "no topic"),
        ({"action": JobAction("a", {"x": "y" * 65_536})}, InvalidProperties, "bytes"),
        ({"action": JobAction("a", {"x": object()})}, InvalidProperties, "JSON"),
        ({"action": JobAction("a", priority=101)}, InvalidSchedule, "the priority is 101"),
        ({"action": EventAction("a", {"event.application": "x"})}, InvalidSchedule, "nobody sets"),
        ({"action": EventAction("a"), "concurrent": False}, InvalidSchedule, "is for jobs"),
        ({"missed_limit": 0}, InvalidSchedule, "from 1 to 100"),
        ({"missed_limit": 101}, InvalidSchedule, "from 1 to 100"),
        ({"times": 0}, InvalidSchedule, "'times' is 0"),
        ({"times": 10**10}, InvalidSchedule, "'times' is"),
        ({"description": "x" * 1001}, InvalidSchedule, "1000 characters"),
        ({"description": "\0"}, InvalidSchedule, "U\\+0000"),
        ({"not_before": NOON.replace(tzinfo=None)}, InvalidSchedule, "offset from UTC"),
        ({"when": At(NOON), "not_before": NOON}, InvalidSchedule, "no 'not before'"),
    ],
)
def test_what_is_refused(given: dict[str, Any], error: type[Permanent], reported: str) -> None:
    with pytest.raises(error, match=reported):
        require_schedule(definition(**given))


def test_what_is_right_is_returned_as_it_is() -> None:
    good = definition(not_before=NOON, times=3, action=EventAction("a/b", {"x": 1}))
    assert require_schedule(good) is good
