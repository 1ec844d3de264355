"""The checkers of the jobs' ledger catch what they are there for."""

import pytest

from tests.harness.jobs.ledger import (
    CHECKED,
    LEAST,
    ONCE,
    ORDERED,
    Effect,
    check_all,
)

HAD = [
    Effect(1, ORDERED, 1, 1, False, "a"),
    Effect(2, ONCE, 2, 3, True, "a"),
    Effect(3, LEAST, 3, 2, True, "b"),
    Effect(4, LEAST, 3, 1, False, "a"),  # late, from a worker that was paused
    Effect(5, CHECKED, 4, 1, False, "a"),
    Effect(6, CHECKED, 4, 2, True, "b"),
    Effect(7, ORDERED, 5, 1, False, "b"),
]
ENDED = {
    1: (ORDERED, "SUCCEEDED"),
    2: (ONCE, "SUCCEEDED"),
    3: (LEAST, "SUCCEEDED"),
    4: (CHECKED, "SUCCEEDED"),
    5: (ORDERED, "SUCCEEDED"),
}


def test_a_right_history_passes() -> None:
    check_all(HAD, ENDED, 5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (Effect(8, ONCE, 2, 4, True, "b"), "more than once"),
        (Effect(8, LEAST, 3, 3, False, "b"), "without the flag"),
        (Effect(8, LEAST, 3, 2, True, "b"), "two effects"),
        (Effect(8, LEAST, 9, 1, False, "b"), "without an effect"),
        (Effect(8, ORDERED, 1, 2, True, "a"), "more than once"),
    ],
)
def test_one_effect_too_many_is_caught(more: Effect, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_all([*HAD, more], ENDED, 5)


def test_an_effect_of_an_older_attempt_is_caught() -> None:
    late = [Effect(7 - one.id, one.kind, one.number, one.epoch, one.retry, "") for one in HAD]
    with pytest.raises(AssertionError, match="older attempt"):
        check_all([one for one in late if one.kind == CHECKED], {4: (CHECKED, "SUCCEEDED")}, 1)


def test_a_job_done_out_of_order_is_caught() -> None:
    turned = [Effect(8 - one.id, one.kind, one.number, 1, False, "") for one in HAD[::6]]
    with pytest.raises(AssertionError, match="was done after"):
        check_all(turned, {1: ENDED[1], 5: ENDED[5]}, 2)


@pytest.mark.parametrize("index", range(0, 7, 6))
def test_a_missing_effect_is_caught(index: int) -> None:
    with pytest.raises(AssertionError, match="without an effect"):
        check_all([one for one in HAD if one is not HAD[index]], ENDED, 5)


def test_a_lost_or_given_up_job_is_caught() -> None:
    with pytest.raises(AssertionError, match="have ended"):
        check_all(HAD, ENDED, 6)
    with pytest.raises(AssertionError, match="not done"):
        check_all(HAD, ENDED | {3: (LEAST, "GIVEN_UP")}, 5)
