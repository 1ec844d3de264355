"""An author, its publishers as processes, subscribers that a test plays, clients that follow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from packhorse.blobs.open import open_blobs
from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.wire.codec import encode_discovery, encode_status
from packhorse.wire.messages import DiscoveryMessage, Status, StatusMessage, SubscriberState
from packhorse_services.publisher.live.events import EventType
from tests.harness.live import message
from tests.harness.postgres import Databases
from tests.harness.processes import Program, Programs, running_programs
from tests.harness.publishing import AGENT, TOPICS, Author, page
from tests.harness.sse import EventClient


@dataclass
class Site:
    """An author with publishers, and the journal from behind."""

    programs: Programs
    journal: Journal
    database_url: str
    author: Author
    clients: list[EventClient] = field(default_factory=list)

    def publisher(self, **settings: Any) -> Program:
        program = self.programs.publisher(self.database_url, AGENT, **settings)
        program.start()
        return program.ready()

    def client(self, program: Program, last_id: str = "", **query: str) -> EventClient:
        found = EventClient(program.url, self.programs.token, last_id, **query)
        self.clients.append(found)
        return found.until(lambda one: one.blocks)

    def ask(self, program: Program, path: str, **headers: str) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {self.programs.token}"}
        return httpx.get(f"{program.url}{path}", headers={**bearer, **headers}, timeout=120)

    def distribute(self, program: Program, *paths: str) -> str:
        body = {"action": "INVALIDATE", "paths": list(paths)}
        bearer = {"Authorization": f"Bearer {self.programs.token}"}
        answer = httpx.post(f"{program.url}/distribute", json=body, headers=bearer, timeout=120)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def status(self, subscriber: str, offset: int, **more: Any) -> None:
        packages = self.journal.identity(TOPICS.package)
        reported = StatusMessage(subscriber, AGENT, packages, offset, Status.REMOVED_FAILED, **more)
        encoded = encode_status(reported)
        self._append(TOPICS.status, Outgoing(encoded.value, encoded.headers))

    def distributed(self, package_id: str) -> None:
        encoded = message(EventType.DISTRIBUTED, package_id)
        self._append(TOPICS.event, Outgoing(encoded.value, encoded.headers, AGENT))

    def announce(self, subscriber: str, offset: int, **subscription: Any) -> None:
        states = (SubscriberState(AGENT, offset, **subscription),)
        encoded = encode_discovery(DiscoveryMessage(subscriber, states))
        self._append(TOPICS.discovery, Outgoing(encoded.value, encoded.headers, subscriber))

    def _append(self, topic: str, record: Outgoing) -> None:
        self.journal.append(topic, record).result(120)


@contextmanager
def live_site(databases: Databases) -> Iterator[Site]:
    """Give a site with the pages /a and /b on a SQL journal; it all ends with the block."""
    database_url = databases.new()
    with running_programs(databases.new("journal")) as programs:
        settings = programs._settings
        journal = open_journal(str(settings["journal_url"]), client_name="tests")
        author = Author(database_url, journal, open_blobs(str(settings["blobs_url"])))
        author.write(page("/a"), page("/b"))
        site = Site(programs, journal, database_url, author)
        try:
            yield site
        finally:
            for client in site.clients:
                client.close()
            journal.close()
