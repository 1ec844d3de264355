"""Cursors: read back as they were written, and refused where nobody wrote them."""

from datetime import UTC, datetime

import pytest

from packhorse.jobs.ledger.pages import (
    START,
    HistoryStart,
    InvalidPage,
    Unfinished,
    read_cursor,
    require_limit,
    write_cursor,
)


@pytest.mark.parametrize(
    "place",
    [
        START,
        Unfinished(2**53),
        HistoryStart(),
        HistoryStart(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), 7),
    ],
)
def test_a_cursor_is_read_as_it_was_written(place: Unfinished | HistoryStart) -> None:
    assert read_cursor(write_cursor(place)) == place


def test_without_a_cursor_it_begins() -> None:
    assert read_cursor(None) == START


@pytest.mark.parametrize(
    "text", ["", "x", "u-", "u--1", "h-1", "h-1-2-3", "u-" + "9" * 30, "ü-1", "u-1\n", "u-१"]
)
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidPage, match="cursor"):
        read_cursor(text)


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_is_bounded(limit: int) -> None:
    with pytest.raises(InvalidPage, match="1 to 1000"):
        require_limit(limit)
