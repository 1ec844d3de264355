"""Models that hypothesis plays against what they describe."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def play(
    machine: type[RuleBasedStateMachine], examples: int, *, steps: int = 25, **options: Any
) -> None:
    """Play so many examples of up to so many steps, however long they take."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )
