"""The memory journal does what lists would do."""

from hypothesis import settings

from packhorse.messaging.api import Journal
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from tests.harness.depth import examples
from tests.harness.journal_model import JournalMachine


class MemoryMachine(JournalMachine):
    def open(self) -> Journal:
        return MemoryJournal(MemoryLog())


TestMemoryJournal = MemoryMachine.TestCase
TestMemoryJournal.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
