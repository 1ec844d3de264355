"""R31: imported everywhere is one state, done but not everywhere another."""

import pytest

from packhorse_services.publisher.outcomes.distribution_state import Reached, state_of

ALL = Reached(done=9, everywhere=9, began=-1)


@pytest.mark.parametrize(
    ("reached", "offset", "other", "state"),
    [
        (ALL, None, set(), "ACCEPTED"),
        (ALL, 10, set(), "QUEUED"),
        (Reached(done=-1, everywhere=-1, began=-1), 0, set(), "QUEUED"),
        (ALL, 9, set(), "DISTRIBUTED"),
        (ALL, 9, {(9, "p")}, "PARTLY_DISTRIBUTED"),
        (ALL, 9, {(9, "")}, "PARTLY_DISTRIBUTED"),
        (ALL, 9, {(9, "another"), (8, "p")}, "DISTRIBUTED"),
        (Reached(done=9, everywhere=4, began=-1), 5, set(), "PARTLY_DISTRIBUTED"),
        (Reached(done=9, everywhere=4, began=-1), 4, set(), "DISTRIBUTED"),
        (Reached(done=9, everywhere=9, began=4), 4, set(), "PARTLY_DISTRIBUTED"),
        (Reached(done=9, everywhere=9, began=4), 5, set(), "DISTRIBUTED"),
    ],
)
def test_r31_the_state_of_a_package(
    reached: Reached, offset: int | None, other: set[tuple[int, str]], state: str
) -> None:
    assert state_of(reached, "p", offset, other).value == state
