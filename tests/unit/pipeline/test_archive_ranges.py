"""What a batch is cut into: every offset is read by one task, and each has as much to do."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.pipeline.archive import places as at

_PLACES = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.integers(0, 2), st.integers(0, 40), max_size=3)
)


@given(_PLACES, _PLACES, st.integers(1, 8))
def test_every_offset_is_in_one_share_and_shares_are_even(
    start: at.Places, end: at.Places, count: int
) -> None:
    found = at.shares(start, end, count)
    assert sorted(
        (one.topic, one.partition, offset)
        for share in found
        for one in share
        for offset in range(one.start, one.end)
    ) == sorted(
        (topic, number, offset)
        for topic, partitions in end.items()
        for number, last in partitions.items()
        for offset in range(at.place(start, topic, number) or 0, last)
    )
    assert all(one.start < one.end for share in found for one in share)
    sizes = [sum(one.end - one.start for one in share) for share in found]
    assert len(sizes) <= count
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_a_share_goes_on_in_the_next_partition() -> None:
    start, end = {"a": {0: 5}}, {"a": {0: 8}, "b": {0: 3}}
    assert at.shares(start, end, 2) == [
        [at.OffsetRange("a", 0, 5, 8)],
        [at.OffsetRange("b", 0, 0, 3)],
    ]
    assert at.shares(start, end, 1) == [
        [at.OffsetRange("a", 0, 5, 8), at.OffsetRange("b", 0, 0, 3)]
    ]
