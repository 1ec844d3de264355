"""The SQL journal does what lists would do, across many small segments."""

from packhorse.messaging.api import Journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.depth import examples
from tests.harness.journal_model import JournalMachine
from tests.harness.machines import play


def test_the_sql_journal_agrees_with_its_model(database_url: str) -> None:
    class SqlMachine(JournalMachine):
        def open(self) -> Journal:
            return SqlJournal(database_url, "model", SegmentLimits(records=4))

    play(SqlMachine, examples(25))
