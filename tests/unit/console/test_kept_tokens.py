"""Keys of sessions and links: how long they are good, for how many, and what ends them."""

import pytest

from packhorse_services.console.frame.kept_tokens import KeptTokens, TokenLimits
from tests.harness.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> KeptTokens:
    return KeptTokens(TokenLimits(longest_s=100, idle_s=10, each=2, most=3), clock)


def test_a_key_ends_when_it_is_idle_and_use_keeps_it_up_to_the_longest(
    sessions: KeptTokens, clock: ManualClock
) -> None:
    key = sessions.keep("secret", "anna")
    for _ in range(11):
        clock.advance(9)
        assert sessions.token(key, used=True) == "secret"
    clock.advance(1)
    assert sessions.token(key) == "", "it is 100 s old, however it was used"


def test_looking_is_no_use(sessions: KeptTokens, clock: ManualClock) -> None:
    key = sessions.keep("secret", "anna")
    clock.advance(9)
    assert sessions.token(key) == "secret"
    clock.advance(1)
    assert sessions.token(key, used=True) == ""


def test_what_is_forgotten_is_told_of_once(clock: ManualClock) -> None:
    told: list[int] = []
    sessions = KeptTokens(TokenLimits(100, 10, 2, 3), clock, lambda: told.append(1))
    key = sessions.keep("secret", "anna")
    sessions.forget("guessed")
    assert told == []
    sessions.forget(key)
    sessions.forget(key)
    assert (sessions.token(key), told) == ("", [1])


def test_nobody_pushes_out_others_before_the_own(sessions: KeptTokens, clock: ManualClock) -> None:
    others = sessions.keep("b", "ben")
    own = [sessions.keep("a", "anna") for _ in range(5)]
    assert [sessions.token(key) for key in (others, *own)] == ["b", "", "", "", "a", "a"]
    clock.advance(10)
    assert sessions.token(sessions.keep("c", "carl")) == "c", "what is over takes no room"


def test_the_key_itself_is_not_kept(sessions: KeptTokens) -> None:
    key = sessions.keep("secret", "anna")
    assert key not in repr(vars(sessions))
