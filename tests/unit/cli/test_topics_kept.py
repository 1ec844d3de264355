"""`packhorse topics retention`: periods as they are written and shown."""

import pytest

from packhorse.messaging.topics import retention_faults
from packhorse.wire.topics import Topics
from packhorse_services.cli.client.failures import CommandFailed
from packhorse_services.cli.topics.keeping import period_of, seconds


@pytest.mark.parametrize("period", ["14d", "36h", "90m", "forever"])
def test_a_period_is_shown_as_it_is_written(period: str) -> None:
    assert period_of(seconds(period)) == period
    assert period_of(61) == "61s"


@pytest.mark.parametrize("period", ["", "14", "d", "-1d", "1.5d", "14 d", "2w"])
def test_what_is_no_period_is_refused(period: str) -> None:
    with pytest.raises(CommandFailed, match="such as 14d"):
        seconds(period)


def test_topics_that_forget_before_packages_are_named() -> None:
    names = Topics()
    found = dict.fromkeys(names.by_part().values(), 1000)
    assert retention_faults(names, found) == []
    found[names.discovery] = 1
    assert retention_faults(names, {**found, names.package: 999}) == []
    [fault] = retention_faults(names, {**found, names.status: 999})
    assert names.status in fault
    assert len(retention_faults(names, {**found, names.package: -1})) == 3
    assert len(retention_faults(names, {**found, names.package: -1, names.event: -1})) == 2
