"""Clients that edit the author and distribute, and never give up on a request they have made."""

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import psycopg

from packhorse.content.node import Node
from packhorse.content.tree import upsert
from tests.chaos.ledger import ONCE, SHARED

_SHARED_PATHS = 20
_RETRY_S = 0.2
_WHILE_FAULTS_COME_S = 0.3


@dataclass
class Workload:
    """At least `total` distributions, each of a path of its own and of a contended one."""

    author_url: str
    publishers: list[str]
    token: str
    total: int
    clients: int = 6
    accepted: dict[str, int | None] = field(default_factory=dict)
    """Package id to the offset that the answer named."""
    once: list[str] = field(default_factory=list)
    retries: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._stop = threading.Event()
        self.may_end = threading.Event()
        """Set it, or clients go on behind `total`."""
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), daemon=True)
            for seed in range(self.clients)
        ]

    def start(self) -> None:
        """Begin; the threads end by themselves when all is accepted, and they may end."""
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        """Whether something is still to be accepted."""
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """End the clients, after a failure of the test."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with httpx.Client(
                timeout=20, headers={"Authorization": f"Bearer {self.token}"}
            ) as client:
                while (number := self._take()) is not None:
                    self._one(client, chance, number)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _take(self) -> int | None:
        if self._next >= self.total:  # traffic for the faults to come, not all that the machine has
            self.may_end.wait(_WHILE_FAULTS_COME_S)
        with self._lock:
            enough = self._next >= self.total and self.may_end.is_set()
            if enough or self._stop.is_set():
                return None
            self._next += 1
            return self._next

    def _one(self, client: httpx.Client, chance: random.Random, number: int) -> None:
        once = f"{ONCE}{number:06d}"
        shared = f"{SHARED}{chance.randrange(_SHARED_PATHS):02d}"
        self._until_done(lambda: self._edit(once, shared))
        answer = self._until_done(
            lambda: self._distribute(client, chance, f"chaos-{number}", [once, shared])
        )
        with self._lock:
            self.accepted[answer["package_id"]] = answer.get("offset")
            self.once.append(once)

    def _edit(self, once: str, shared: str) -> bool:
        """Write the page, and raise the contended page's version by one."""
        with psycopg.connect(self.author_url, connect_timeout=5) as connection:
            found = connection.execute(
                "SELECT (properties->>'version')::int FROM content.node WHERE path = %s FOR UPDATE",
                (shared,),
            ).fetchone()
            version = (found[0] if found else 0) + 1
            upsert(
                connection,
                [
                    Node(once, "page", json.dumps({"version": 1, "text": "x" * 500})),
                    Node(shared, "page", json.dumps({"version": version})),
                ],
            )
        return True

    def _distribute(
        self, client: httpx.Client, chance: random.Random, key: str, paths: list[str]
    ) -> dict[str, object]:
        response = client.post(
            f"{chance.choice(self.publishers)}/distribute",
            json={"action": "ADD", "paths": paths},
            headers={"Idempotency-Key": key},
        )
        if response.status_code in (409, 429, 503):
            raise httpx.TransportError(f"{response.status_code}: {response.text}")
        assert response.status_code == 202, f"{response.status_code}: {response.text}"
        body: dict[str, object] = response.json()
        return body

    def _until_done(self, attempt: Callable[[], object]) -> dict[str, object]:
        while True:
            try:
                return attempt()  # type: ignore[return-value]
            except (httpx.TransportError, psycopg.OperationalError, psycopg.InterfaceError):
                if self._stop.is_set():
                    raise
                with self._lock:
                    self.retries += 1
                time.sleep(_RETRY_S)
