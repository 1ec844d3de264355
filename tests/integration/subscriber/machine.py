"""What the subscriber's state machines begin and end with."""

import tempfile
import uuid
from typing import Any, LiteralString

import psycopg
from hypothesis.stateful import RuleBasedStateMachine

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from tests.harness.feed import Feed
from tests.harness.subscriber import Worker
from tests.integration.subscriber.conftest import empty


class SubscriberMachine(RuleBasedStateMachine):
    """Has a log of its own and an empty database for each run."""

    url: str
    worker: Worker

    def prepare(self, **feed: Any) -> None:
        """Make all but the worker."""
        empty(self.url)
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.folder = tempfile.TemporaryDirectory(prefix="packhorse-machine-")
        journal = open_journal(f"memory://{uuid.uuid4()}", client_name="tests")
        self.feed = Feed(journal, open_blobs(self.folder.name), **feed)

    def teardown(self) -> None:
        if hasattr(self, "worker"):
            self.worker.die()
            self.folder.cleanup()
            self.connection.close()

    def _rows(self, query: LiteralString) -> list[Any]:
        return self.connection.execute(query).fetchall()
