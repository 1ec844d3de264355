"""What counts as a producer's number: in a message that is sent, and in the headers of a record."""

import pytest

from packhorse.messaging.api import Outgoing
from packhorse.messaging.numbered import BadNumber, Numbered, number_of


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence"),
    [
        *[("", 1, 1), ("x" * 256, 1, 1), ("a\nb", 1, 1)],
        *[("p", 0, 1), ("p", 2**53, 1), ("p", 1, -1), ("p", 1, 2**53)],
    ],
)
def test_a_number_that_is_none_is_refused(producer: str, epoch: int, sequence: int) -> None:
    with pytest.raises(BadNumber):
        Numbered(producer, epoch, sequence, Outgoing(b""))


def test_the_largest_number_comes_back_from_the_headers() -> None:
    largest = Numbered("x" * 255, 2**53 - 1, 2**53 - 1, Outgoing(b""))
    assert number_of(largest.outgoing(None).headers) == largest.number


@pytest.mark.parametrize(
    ("name", "epoch", "sequence"),
    [
        (b"\xff", b"1", b"1"),
        (b"", b"1", b"1"),
        (b"p", b"0", b"1"),
        (b"p", b"1", b"-1"),
        (b"p", b"1", b"9" * 5_000),
        (b"p", b"1", b"9223372036854775808"),
        (b"p", b"1", "\u0663".encode()),
    ],
)
def test_r30_headers_that_have_no_number_are_not_ours(
    name: bytes, epoch: bytes, sequence: bytes
) -> None:
    headers = {"producer-name": name, "producer-epoch": epoch, "producer-sequence": sequence}
    assert number_of(headers) is None
