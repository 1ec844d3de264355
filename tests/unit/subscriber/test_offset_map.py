"""Four bytes an offset: a map that keeps what is nearest above its base (R30)."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse.wire.messages import Status, StatusMessage
from packhorse_services.subscriber.staging.staged_subscription import (
    OffsetMap,
    StagedSubscription,
)

BLOCK = 4_096
offsets = st.one_of(st.integers(-5, 20 * BLOCK), st.integers(-(2**63), 2**63 - 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), offsets, st.integers(1, 2**32 - 1)),
        st.tuples(st.just("forget"), st.integers(-1, 20 * BLOCK), st.just(0)),
    ),
    max_size=60,
)


@given(steps=steps, blocks=st.integers(1, 5))
def test_it_knows_everything_between_its_floor_and_its_horizon(
    steps: list[tuple[str, int, int]], blocks: int
) -> None:
    known, model = OffsetMap(blocks), dict[int, int]()
    for step, offset, value in steps:
        if step == "forget":
            known.forget(offset)
        elif offset > known.base:
            known.put(offset, value)
            model[offset] = value
        assert len(known._blocks) <= blocks
    for offset, value in model.items():
        if offset > known.base and known.reaches(offset):
            assert known.get(offset) == value
    for offset in (known.base, known.base + 1, 7):
        if offset > known.base and known.reaches(offset):
            assert known.get(offset) == model.get(offset, 0)


def test_the_nearest_is_kept_however_much_lies_above() -> None:
    known = OffsetMap(blocks=2)
    for offset in (5 * BLOCK, 4 * BLOCK, 3 * BLOCK, 1, 6 * BLOCK):
        known.put(offset, 1)
    assert (known.get(1), known.reaches(3 * BLOCK), known.reaches(4 * BLOCK)) == (1, True, False)
    assert not known.has_room()
    known.forget(BLOCK)
    assert known.has_room()


def test_r30_a_thousand_reasons_are_kept_of_what_was_refused_and_is_still_to_come() -> None:
    staged = StagedSubscription("log")

    def report(offsets: range, status: Status) -> None:
        for offset in offsets:
            message = StatusMessage("golden", "main", "log", offset, status, f"p{offset}")
            staged.take(message, "bad")

    report(range(2_000), Status.IMPORTED)
    assert staged.reasons == {}
    report(range(2_000), Status.REMOVED_FAILED)
    assert list(staged.reasons) == [*range(1_000)]
    staged.forget(899)
    report(range(100), Status.REMOVED_FAILED)
    report(range(900, 910), Status.IMPORTED)
    assert list(staged.reasons) == [*range(910, 1_000)]
