"""An author with its subscribers as processes, and what a user does with them over HTTP."""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from packhorse.content.tree import content_hash
from packhorse.db.connect import connect
from tests.harness.postgres import Databases
from tests.harness.processes import Program, Programs, running_programs
from tests.harness.waiting import eventually

Document = dict[str, Any]

_DONE = ("IMPORTED", "REMOVED", "REMOVED_FAILED", "SKIPPED")


class Site:
    """One publisher, one content API, subscribers that come and go; topics of its own."""

    def __init__(self, made: Programs, databases: Databases) -> None:
        self.programs, self.databases = made, databases
        self.author_url = databases.new("author")
        self.publisher = made.publisher(self.author_url)
        self.content = made.content(self.author_url)
        self.subscribers: dict[str, Program] = {}
        self.database_urls: dict[str, str] = {}
        headers = {"Authorization": f"Bearer {made.token}"}
        self.http = httpx.Client(headers=headers, timeout=120)

    def subscriber(self, name: str, database_url: str | None = None, **settings: Any) -> Program:
        """Return a new subscriber, not started."""
        self.database_urls[name] = database_url or self.databases.new(name)
        self.subscribers[name] = self.programs.subscriber(
            name, self.database_urls[name], **settings
        )
        return self.subscribers[name]

    def start(self) -> None:
        """Start all that does not run, and wait until the publisher knows the subscribers."""
        self.programs.start()
        eventually(lambda: set(self.subscribers) <= set(self.known()), what="all are known")

    def join(self, name: str, database_url: str | None = None, **settings: Any) -> Program:
        """Start a new subscriber, and wait until the publisher knows it."""
        program = self.subscriber(name, database_url, **settings)
        program.start()
        program.ready()
        eventually(lambda: name in self.known(), what=f"the publisher knows {name}")
        return program

    def leave(self, name: str) -> None:
        """End a subscriber for good."""
        program = self.subscribers.pop(name)
        if program.running:
            program.stop()

    def known(self) -> list[str]:
        """Return the subscribers that the publisher knows."""
        found = self.get("/subscribers")["subscribers"]
        return [one["subscriber"] for one in found]

    def get(self, path: str) -> Document:
        """Return a document of the publisher."""
        return self._document(self.http.get(self.publisher.url + path))

    def put(self, path: str, **node: Any) -> None:
        """Write a node at the author."""
        body = {"type": "page", **node}
        self._document(self.http.put(f"{self.content.url}/content{path}", json=body))

    def remove(self, path: str) -> None:
        """Remove a node and all below it at the author."""
        self._document(self.http.delete(f"{self.content.url}/content{path}"))

    def put_binary(self, content: bytes) -> Document:
        """Put bytes into the blob store; return the reference that a node may hold."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        answer = self.http.put(f"{self.content.url}/blobs/{digest}", content=content)
        assert answer.is_success, answer.text
        return {"digest": digest, "length": len(content), "media_type": "image/png"}

    def distribute(
        self,
        *paths: str,
        action: str = "ADD",
        deep: Sequence[str] = (),
        key: str | None = None,
    ) -> Document:
        """Distribute and return the answer, with the offset that it may have come too early for."""
        body = {"action": action, "paths": list(paths), "deep_paths": list(deep)}
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        answer = self.http.post(f"{self.publisher.url}/distribute", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        accepted = self._document(answer)
        if accepted["offset"] is None:
            shown = f"/distributions/{accepted['id']}"
            eventually(lambda: self.get(shown)["offset"] is not None, f"{accepted} has an offset")
            accepted["offset"] = self.get(shown)["offset"]
        return accepted

    def distribute_everywhere(self, *paths: str, **requested: Any) -> Document:
        """Distribute, and wait until all our subscribers are done with it."""
        accepted = self.distribute(*paths, **requested)
        return self.everywhere(accepted)

    def everywhere(self, accepted: Document) -> Document:
        """Wait until all our subscribers are done with a distribution; return what it became."""

        def done() -> Document | None:
            found = self.get(f"/distributions/{accepted['id']}")
            states = {one["subscriber"]: one["state"] for one in found["subscribers"]}
            # Not the state DISTRIBUTED: it waits 30 s for a subscriber that has left.
            mine = [states.get(name) for name in self.subscribers]
            return found if all(state in _DONE for state in mine) else None

        found = eventually(done, timeout=180, what=f"{accepted} everywhere")
        assert found is not None
        return found

    def at(self, subscriber: str, path: str) -> Document | None:
        """Return a node as a subscriber serves it, or None."""
        answer = self.http.get(f"{self.subscribers[subscriber].url}/content{path}")
        return None if answer.status_code == 404 else self._document(answer)

    def hashes(self, path: str) -> dict[str, str]:
        """Return the hash of the subtree at `path` at the author and at every subscriber."""
        urls = {"author": self.author_url}
        urls |= {name: self.database_urls[name] for name in self.subscribers}
        return {name: _hash(url, path) for name, url in urls.items()}

    def queue(self, subscriber: str) -> Document:
        """Return a subscriber's queue."""
        return self.get(f"/queues/{subscriber}")

    def clear(self, subscriber: str, **body: int) -> httpx.Response:
        """Clear a subscriber's queue."""
        return self.http.post(f"{self.publisher.url}/queues/{subscriber}/clear", json=body)

    @staticmethod
    def _document(answer: httpx.Response) -> Document:
        assert answer.is_success, f"{answer.request.url} {answer.status_code}: {answer.text}"
        document: Document = answer.json()
        return document


@contextmanager
def site(databases: Databases, journal_url: str, **settings: Any) -> Iterator[Site]:
    """Give an author and nothing that runs yet, on topics that nobody else has."""
    prefix = f"t{uuid.uuid4().hex[:12]}"
    with running_programs(journal_url, topic_prefix=prefix, **settings) as made:
        built = Site(made, databases)
        with built.http:
            yield built


def _hash(url: str, path: str) -> str:
    with connect(url, "tests") as connection:
        return content_hash(connection, path)
