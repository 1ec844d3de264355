"""Byte ranges of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.routes import ByteRange, RangeNotSatisfiable, parse_range


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=2-", ByteRange(2, 10)),
        ("bytes=-3", ByteRange(7, 10)),
        ("bytes=-300", ByteRange(0, 10)),
        ("bytes=5-300", ByteRange(5, 10)),
        (" bytes=0-9 ", ByteRange(0, 10)),
        (None, None),
        ("", None),
        ("bytes=-", None),
        ("bytes=5-4", None),
        ("bytes=0-1,3-4", None),
        ("pages=0-1", None),
        ("bytes=a-b", None),
        ("bytes=\u0661-", None),
        ("bytes=" + "9" * 5000 + "-", None),
    ],
)
def test_ranges_of_ten_bytes(header: str | None, part: ByteRange | None) -> None:
    assert parse_range(header, 10) == part


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_ranges_behind_the_end(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        parse_range(header, 10)


@given(st.text("bytes=-0123456789, ", max_size=30), st.integers(0, 1000))
def test_a_range_is_never_outside(header: str, length: int) -> None:
    try:
        part = parse_range(header, length)
    except RangeNotSatisfiable:
        return
    assert part is None or 0 <= part.start < part.end <= length
