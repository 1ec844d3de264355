"""What a subscription times, and what it measures of what arrives."""

import pytest
from prometheus_client import REGISTRY

from packhorse.messaging.api import Record
from packhorse_services.subscriber.importing.measures import measure_arrival, timed_import
from packhorse_services.subscriber.journal.arrivals import Arrival, mark_of
from tests.harness.grown import growth


def test_an_import_is_timed_while_it_lasts_and_by_how_it_ends() -> None:
    grown = growth(
        ("subscriber_import_seconds_count", {"status": "imported"}),
        ("subscriber_import_seconds_count", {"status": "failed"}),
    )
    lasts: list[float | None] = []

    def look() -> None:
        name = "packhorse_subscriber_current_import_seconds"
        lasts.append(REGISTRY.get_sample_value(name, {"agent": "timed"}))

    with timed_import("timed"):
        look()
    look()
    assert grown() == [1, 0]
    with pytest.raises(ZeroDivisionError), timed_import("timed"):
        raise ZeroDivisionError
    assert grown() == [1, 1]
    assert lasts[0] > 0
    assert lasts[1] == 0


def recorded(offset: int, time_ms: int) -> Record:
    return Record("packages", 0, offset, time_ms, None, {}, b"")


def test_the_newest_arrival_says_how_long_the_journal_took() -> None:
    grown = growth(("subscriber_journal_seconds_count", {}), ("subscriber_journal_seconds_sum", {}))
    arrivals = [
        Arrival(mark_of(record), record) for record in (recorded(0, 1_000), recorded(1, 2_000))
    ]
    measure_arrival(arrivals, 5_000)
    assert grown() == [1, 3]
    measure_arrival([], 5_000)
    assert grown() == [1, 3]
