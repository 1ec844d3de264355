"""The SQL journal does what lists would do, across many small segments."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from packhorse.messaging.api import Journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.depth import examples
from tests.harness.journal_model import JournalMachine


def test_the_sql_journal_agrees_with_its_model(database_url: str) -> None:
    class SqlMachine(JournalMachine):
        def open(self) -> Journal:
            return SqlJournal(database_url, "model", SegmentLimits(records=4))

    run_state_machine_as_test(
        SqlMachine,
        settings=settings(
            max_examples=examples(25),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
