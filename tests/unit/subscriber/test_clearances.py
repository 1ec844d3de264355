"""Commands in force: the nearest one that covers an offset, per agent and journal (R19)."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.subscriber.commands.clearances import Clearance, Clearances

offsets = st.integers(0, 30)


@given(commands=st.lists(offsets), passed=st.integers(-1, 30), asked=offsets)
def test_r19_an_offset_is_covered_up_to_the_command_and_never_above(
    commands: list[int], passed: int, asked: int
) -> None:
    clearances = Clearances()
    for up_to in commands:
        clearances.add("main", "j", Clearance(up_to, f"c{up_to}"))
        clearances.add("main", "j", Clearance(up_to, f"c{up_to}"))
    clearances.forget("main", "j", passed)
    kept = [up_to for up_to in commands if up_to > passed]
    covering = min((up_to for up_to in kept if up_to >= asked), default=None)
    found = clearances.covering("main", "j", asked)
    assert (found.up_to if found else None) == covering
    assert clearances.covering("other", "j", asked) is None
    assert clearances.covering("main", "other journal", asked) is None


def test_listeners_hear_every_command() -> None:
    clearances, heard = Clearances(), []
    clearances.listen(lambda: heard.append(1))
    clearances.add("main", "j", Clearance(1, "a"))
    clearances.add("main", "j", Clearance(1, "a"))
    assert len(heard) == 2
