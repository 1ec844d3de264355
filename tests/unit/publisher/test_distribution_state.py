"""R31: imported everywhere is one state, done but not everywhere another."""

import pytest

from packhorse_services.publisher.outcomes.distribution_state import (
    Reached,
    ReachedBy,
    state_of,
)

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


def test_r35_only_those_that_a_package_is_for_count() -> None:
    reached = Reached.by(
        {
            "mended": ReachedBy(settled=9, began=-1),
            "blocked": ReachedBy(settled=3, began=-1),
            "silent": ReachedBy(settled=-1, began=-1, stale=True),
        }
    )
    assert (reached.done, reached.everywhere) == (3, -1)
    for targets, state in (
        (("mended", "unknown"), "DISTRIBUTED"),
        (("mended", "silent"), "PARTLY_DISTRIBUTED"),
        (("mended", "blocked"), "QUEUED"),
        (("silent",), "QUEUED"),
        ((), "QUEUED"),
    ):
        assert state_of(reached.among(targets), "p", 9, set()).value == state
