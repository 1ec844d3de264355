"""R9, R18: outcomes and events equal a model, whatever repeats, crashes and restarts there are."""

import pytest

from packhorse.messaging.api import Journal
from packhorse.messaging.memory import shared_log
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.depth import at_depth, examples
from tests.harness.journals import KafkaBackend, SqlBackend
from tests.harness.kafka.broker import RunningKafka
from tests.harness.machines import play
from tests.harness.outcomes import OutcomesMachine


def test_r18_outcomes_and_events_on_the_journal_in_memory(database_url: str) -> None:
    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return open_journal("memory://outcomes", client_name="tests")

        def remove_topic(self, topic: str) -> None:
            shared_log("outcomes").remove_topic(topic)

    play(Machine, examples(80), steps=40)


def test_r18_outcomes_and_events_on_the_sql_journal(database_url: str) -> None:
    backend = SqlBackend(database_url)

    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return SqlJournal(database_url, "model", SegmentLimits(records=4))

        def remove_topic(self, topic: str) -> None:
            backend.remove_topic(topic)

    play(Machine, at_depth(12, 2), steps=30)


@pytest.mark.kafka
@pytest.mark.depth  # the model is in front of the journal, which SQL and memory play too
def test_r18_outcomes_and_events_on_kafka(database_url: str, kafka: RunningKafka) -> None:
    backend = KafkaBackend(kafka.url)

    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return backend.open()

        def remove_topic(self, topic: str) -> None:
            backend.remove_topic(topic)

    play(Machine, 6, steps=15)
