"""When a program that dies is run again."""

from packhorse_services.cli.stack.supervisor import Restarts


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    restarts = Restarts()
    waits = [restarts.plan(now=0.0, ran_for=1.0) for _ in range(9)]
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_program_that_ran_well_starts_over() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.plan(now=0.0, ran_for=1.0)
    assert restarts.plan(now=100.0, ran_for=60.0) == 0.0
    assert restarts.due == 100.0
