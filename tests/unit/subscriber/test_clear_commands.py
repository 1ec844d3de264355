"""Commands in force: the nearest one that covers an offset, per agent and journal (R19)."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.subscriber.commands.clear_commands import ClearCommands, PendingClear

offsets = st.integers(0, 30)


@given(commands=st.lists(offsets), passed=st.integers(-1, 30), requested=offsets)
def test_r19_an_offset_is_covered_up_to_the_command_and_never_above(
    commands: list[int], passed: int, requested: int
) -> None:
    clears = ClearCommands()
    clears.take(("main", "j", PendingClear(up_to, f"c{up_to}")) for up_to in commands)
    clears.forget("main", "j", clears.reached("main", "j", passed))
    kept = [up_to for up_to in commands if up_to > passed]
    covering = min((up_to for up_to in kept if up_to >= requested), default=None)
    found = clears.covering("main", "j", requested)
    assert (found.up_to if found else None) == covering
    assert clears.covering("other", "j", requested) is None
    assert clears.covering("main", "other journal", requested) is None


def test_a_command_that_came_while_others_ended_stays() -> None:
    clears, first, second = ClearCommands(), PendingClear(3, "a"), PendingClear(2, "b")
    clears.take([("main", "j", first)])
    ended = clears.reached("main", "j", 3)
    clears.take([("main", "j", first), ("main", "j", second)])
    clears.forget("main", "j", ended)
    assert clears.reached("main", "j", 3) == [second]


def test_listeners_hear_of_every_change() -> None:
    clears, heard = ClearCommands(), []
    clears.listen(lambda: heard.append(1))
    clears.take([("main", "j", PendingClear(1, "a"))])
    clears.take([])
    assert len(heard) == 2
