"""The store of jobs does what its model says; and the machine that says so notices broken ones."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from packhorse.jobs.store import adding, claim_statements, ending_rows
from packhorse.jobs.store.endings import EndDecision
from tests.harness.depth import examples
from tests.harness.jobs.store_machine import StoreMachine, prepare
from tests.harness.postgres import Databases

_THOROUGH = settings(
    max_examples=examples(40),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
_UNTIL_FOUND = settings(
    _THOROUGH, max_examples=300, phases=(Phase.generate,), report_multiple_bugs=False
)


@pytest.fixture(scope="module")
def machine(databases: Databases) -> type[StoreMachine]:
    prepared = databases.new()
    prepare(prepared)

    class Machine(StoreMachine):
        url = prepared

    return Machine


def test_the_store_does_what_its_model_says(machine: type[StoreMachine]) -> None:
    run_state_machine_as_test(machine, settings=_THOROUGH)


def _changed(module: Any, names: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def change(patch: pytest.MonkeyPatch) -> None:
        for name in names.split():
            text = getattr(module, name)
            assert old in text
            patch.setattr(module, name, text.replace(old, new))

    return change


def _no_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adding, "finished_of", lambda *_: [])


def _never_flagged(patch: pytest.MonkeyPatch) -> None:
    columns = ending_rows._queued_columns

    def unflagged(decisions: list[EndDecision]) -> dict[str, Any]:
        return {**columns(decisions), "retry": [False] * len(decisions)}

    patch.setattr(ending_rows, "_queued_columns", unflagged)


BROKEN = {
    "an end without epoch": _changed(ending_rows, "_LOCK_CLAIMED", "AND j.epoch = c.epoch", ""),
    "a claim without a lease": _changed(
        claim_statements, "HEADS CLAIM_HEADS", "w.lease_until > clock_timestamp()", "true"
    ),
    "rescue of those that live": _changed(
        ending_rows, "_LOCK_LOST", "w.lease_until > clock_timestamp()", "false"
    ),
    "a line with two at a time": _changed(
        claim_statements, "HEADS CLAIM_HEADS", "j.state = 'ACTIVE'", "false"
    ),
    "attempts that are forgotten": _changed(
        ending_rows, "_REQUEUE", "attempts = d.attempts", "attempts = 0"
    ),
    "ids that history does not have": _no_history,
    "a take-over without the flag": _never_flagged,
}


@pytest.mark.proof
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_store_is_noticed(
    machine: type[StoreMachine], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    BROKEN[broken](monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=_UNTIL_FOUND)
