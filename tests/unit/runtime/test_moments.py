"""Moments in requests: RFC 3339 and nothing else."""

from datetime import UTC, datetime

import pytest

from packhorse.runtime.moments import moment_of


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-24T18:00:00Z",
        "2026-12-24t18:00:00.000000000z",
        "2026-12-24 19:30:00+01:30",
        "2026-12-24T18:00:00-00:00",
    ],
)
def test_it_is_in_utc(text: str) -> None:
    assert moment_of(text) == datetime(2026, 12, 24, 18, tzinfo=UTC)
    assert moment_of(text).tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        *(0, 0.5, "0.5", None, True, "", "now"),
        *("2026-12-24", "20261224T180000Z", "2026-12-24T18:00:00", "٢٠٢٦-12-24T18:00:00Z"),
        *("2026-02-30T18:00:00Z", "2026-12-24T25:00:00Z"),
    ],
)
def test_what_says_no_moment_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="such as 2026-12-24T18:00:00Z"):
        moment_of(value)


@pytest.mark.parametrize("year", ["0001", "1970", "9000", "9999"])
def test_a_year_that_no_database_holds_or_that_nobody_means_is_refused(year: str) -> None:
    with pytest.raises(ValueError, match="years 1971 to 8999"):
        moment_of(f"{year}-06-01T00:00:00Z")
