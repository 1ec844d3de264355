"""Reports about a command change its row forward only, bounded, and not for ever (R30)."""

from typing import Any

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import ClearCommand, CommandState, CommandStatusMessage
from packhorse_services.publisher.commands import command_rows
from tests.harness.publishing import AGENT


class TestNoting:
    """Reports about a command change its row forward only."""

    COMMAND = ClearCommand("a" * 32, "sub1", AGENT, 9, "op", journal_id="j")

    @pytest.fixture
    def note(self, database_url: str) -> Any:
        with connect(database_url, "tests") as connection:
            command_rows.write(connection, self.COMMAND)

            def note(state: CommandState, **more: Any) -> tuple[bool, tuple[Any, ...]]:
                known = {"subscriber": "sub1", "publisher_agent": AGENT, **more}
                command_id = known.pop("command_id", "a" * 32)
                news = command_rows.note_status(
                    connection, CommandStatusMessage(command_id, state=state, **known)
                )
                found = command_rows.find(connection, AGENT, "a" * 32)
                assert found is not None
                return news, (found.state, found.removed, found.reason)

            yield note

    def test_a_repeat_and_a_step_back_mean_nothing(self, note: Any) -> None:
        assert note(CommandState.SEEN) == (True, ("SEEN", None, ""))
        assert note(CommandState.SEEN) == (False, ("SEEN", None, ""))
        assert note(CommandState.APPLIED, removed=4) == (True, ("APPLIED", 4, ""))
        for state in CommandState:
            assert note(state, removed=9, reason="x") == (False, ("APPLIED", 4, ""))

    def test_the_end_may_be_reported_before_the_publisher_knows_that_it_was_sent(
        self, note: Any
    ) -> None:
        assert note(CommandState.REJECTED, reason="no") == (True, ("REJECTED", 0, "no"))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"subscriber": "sub2"},
            {"publisher_agent": "another"},
            {"command_id": "b" * 32},
            {"command_id": "a\0"},
            {"subscriber": "x" * 10_000},
        ],
    )
    def test_what_is_not_about_this_command_changes_nothing(self, note: Any, wrong: Any) -> None:
        assert note(CommandState.APPLIED, **wrong) == (False, ("ISSUED", None, ""))

    @pytest.mark.parametrize(
        "odd",
        [
            {"decided_ms": 2**63 - 1},
            {"decided_ms": -(2**63)},
            {"removed": -5, "reason": "\0" + "x" * 10_000},
        ],
    )
    def test_r30_odd_values_are_bounded(self, note: Any, odd: Any) -> None:
        news, (state, removed, reason) = note(CommandState.APPLIED, **odd)
        assert (news, state, removed) == (True, "APPLIED", 0)
        assert len(reason) <= 1_000

    def test_old_commands_are_forgotten_in_batches(self, note: Any, database_url: str) -> None:
        with connect(database_url, "tests") as connection:
            for number in range(5):
                command_rows.write(connection, ClearCommand(f"{number:032x}", "sub1", AGENT, 1))
            connection.execute(
                "UPDATE bookkeeping.command SET issued_at = now() - interval '31 days' "
                "WHERE command_id < 'a'"
            )
            month = 30 * 24 * 3600.0
            assert [command_rows.forget(connection, month, 3) for _ in range(3)] == [3, 2, 0]
