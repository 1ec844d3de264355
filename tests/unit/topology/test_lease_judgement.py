"""Who may say that others are dead: never one that was away or paused together with them."""

import pytest

from packhorse.topology.lease.judgement import Judgement, Renewed

LEASE_S = 10.0


def after(*renewals: tuple[float, float]) -> Judgement:
    """Return the judgement after renewals at (own time, database's time), answered at once."""
    judgement = Judgement(LEASE_S)
    for own, database in renewals:
        judgement.renewed(Renewed(own, own, database))
    return judgement


def steady(start: float, end: float, ahead: float = 500.0) -> list[tuple[float, float]]:
    return [(float(at), at + ahead) for at in range(int(start), int(end) + 1, 2)]


def test_nobody_judges_before_a_renewal() -> None:
    assert not Judgement(LEASE_S).may_judge(1e9)


def test_judging_begins_a_lease_after_the_first_renewal() -> None:
    judgement = after(*steady(0, 10))
    assert not judgement.may_judge(9.9)
    assert judgement.may_judge(10)


def test_a_gap_of_more_than_half_a_lease_begins_anew() -> None:
    assert after(*steady(0, 10), *steady(15, 15)).may_judge(15)
    judgement = after(*steady(0, 10), *steady(16, 26))
    assert not judgement.may_judge(25.9)
    assert judgement.may_judge(26)


@pytest.mark.parametrize("jump", [1.5, 60.0, 1e6])
def test_a_clock_of_the_database_that_jumps_ahead_begins_anew(jump: float) -> None:
    judgement = after(*steady(0, 10), *steady(12, 12, ahead=500 + jump))
    assert not judgement.may_judge(21.9)
    assert judgement.may_judge(22)


def test_a_clock_that_is_set_back_ends_nobodys_lease() -> None:
    assert after(*steady(0, 10), *steady(12, 12, ahead=440)).may_judge(12)


def test_a_slow_answer_is_not_a_jump() -> None:
    judgement = after(*steady(0, 10))
    judgement.renewed(Renewed(12, 15, 514.9))  # the database did it just before it answered
    assert judgement.may_judge(15)


def test_a_new_session_begins_anew() -> None:
    judgement = after(*steady(0, 10))
    judgement.renewed(Renewed(12, 12, 512, session=1))
    assert not judgement.may_judge(21.9)
    assert judgement.may_judge(22)


def test_a_lost_lease_begins_anew() -> None:
    judgement = after(*steady(0, 10))
    judgement.forget()
    assert not judgement.may_judge(100)
    judgement.renewed(Renewed(100, 100, 600))
    assert not judgement.may_judge(109)
