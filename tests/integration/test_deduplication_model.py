"""Deduplication agrees with its model on the SQL and the Kafka journal too."""

from collections.abc import Iterator

import pytest

from packhorse.db.pool import Lender
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from packhorse_services.publisher.outcomes.event_log import DatabaseSnapshots
from tests.harness.borrowing import pooled
from tests.harness.deduplication_model import DeduplicationMachine, ManualSnapshots
from tests.harness.depth import at_depth, examples
from tests.harness.kafka.broker import RunningKafka
from tests.harness.machines import play


class TimedSnapshots(DatabaseSnapshots):
    """Snapshots in the database, by a clock that the test moves."""

    time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture
def pool(database_url: str) -> Iterator[Lender]:
    with pooled(database_url, "tests", 2) as pool:
        yield pool


def test_on_the_sql_journal_with_snapshots_in_a_database(database_url: str, pool: Lender) -> None:
    class SqlMachine(DeduplicationMachine):
        def open(self) -> Journal:
            return SqlJournal(database_url, "model", SegmentLimits(records=4))

        def snapshots(self) -> ManualSnapshots:
            return TimedSnapshots(pool)

    play(SqlMachine, examples(20), steps=20)


@pytest.mark.kafka
def test_on_the_kafka_journal(kafka: RunningKafka) -> None:
    class KafkaMachine(DeduplicationMachine):
        def open(self) -> Journal:
            return open_journal(kafka.url, client_name="model")

    play(KafkaMachine, at_depth(6, 2), steps=15)
