"""Clients that publish each request of theirs once, whatever happens to their connections."""

import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

ONCE = "/once/"
_TIMEOUT_S = 3.0
_RETRY_S = 0.05
_AGAIN = (409, 429, 503)


class Refenced(Exception):
    """A registration that was sent twice was done in the other order."""


@dataclass
class Source:
    """Publishes `paths` in order, one package each; runs in a thread of its own."""

    servers: list[str]
    token: str
    paths: list[str]
    seed: int
    offsets: dict[str, int | None] = field(default_factory=dict)
    """Path to the offset that the answer named."""
    tries: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        # A connection for each request: the proxy has a fate for every one of them.
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=_TIMEOUT_S,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; the thread ends by itself when all is accepted."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether something is still to be accepted."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, after a failure of the test."""
        self._stop.set()
        self._thread.join(120)

    def _run(self) -> None:
        try:
            self.begin()
            for number, path in enumerate(self.paths, 1):
                answer = self.until_answered("POST", "/distribute", **self.request(number, path))
                self.offsets[path] = answer["offset"]
        except BaseException as error:
            self.error = error

    def begin(self) -> None:
        """Do what comes before the first request."""

    def request(self, number: int, path: str) -> dict[str, Any]:
        """Return body and headers of the request for `path`."""
        body = {"action": "ADD", "paths": [path]}
        return {"json": body, "headers": {"Idempotency-Key": f"{self.seed}-{number}"}}

    def until_answered(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send the same request until it has an answer that says what became of it."""
        while not self._stop.is_set():
            answer = self._try(method, path, options)
            if answer is not None:
                return answer
            time.sleep(self._chance.uniform(0, _RETRY_S))
        raise AssertionError("asked to stop")

    def _try(self, method: str, path: str, options: dict[str, Any]) -> dict[str, Any] | None:
        self.tries += 1
        try:
            answer = self._http.request(method, self._chance.choice(self.servers) + path, **options)
        except (httpx.TransportError, httpx.StreamError):
            return None
        if answer.status_code == httpx.codes.CONFLICT and "producer-fenced" in answer.text:
            raise Refenced(answer.text)
        if answer.status_code in _AGAIN:
            return None
        assert answer.is_success, f"{answer.status_code}: {answer.text}"
        try:
            document: dict[str, Any] = answer.json()
        except json.JSONDecodeError:
            return None  # the answer was cut
        return document


@dataclass
class Producer(Source):
    """A replayable source: a name, and a sequence for each request."""

    name: str = ""
    epoch: int = 0

    def begin(self) -> None:
        self.epoch = self.until_answered("PUT", f"/producers/{self.name}")["epoch"]

    def request(self, number: int, path: str) -> dict[str, Any]:
        producer = {"name": self.name, "epoch": self.epoch, "sequence": number}
        return {"json": {"action": "ADD", "paths": [path], "producer": producer}}

    def _try(self, method: str, path: str, options: dict[str, Any]) -> dict[str, Any] | None:
        """Send with the newest epoch: a registration whose answer came too late fenced its own."""
        if "json" in options:
            options["json"]["producer"]["epoch"] = self.epoch
        try:
            return super()._try(method, path, options)
        except Refenced:
            self.begin()
            return None

    def last_sequence(self) -> int:
        """Return what the publisher says was its last one."""
        answer = self.until_answered("GET", f"/producers/{self.name}")
        return int(answer["last_sequence"])
