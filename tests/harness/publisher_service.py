"""A whole publisher in the test's process, asked over HTTP without a socket."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.messaging.api import Outgoing
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.principal import Principal
from packhorse.wire.codec import encode_discovery, encode_status
from packhorse.wire.messages import Action, DiscoveryMessage, Status, StatusMessage, SubscriberState
from packhorse.wire.record import Encoded
from packhorse.wire.topics import Topics
from packhorse_services.publisher.app import Backends, publisher
from packhorse_services.publisher.commands import issuing
from packhorse_services.publisher.http import submission
from packhorse_services.publisher.outcomes.outcome_loop import OutcomeLoop
from packhorse_services.publisher.outcomes.status_watermark import NotSettled, StatusWatermark
from packhorse_services.publisher.queues.topic_follower import NotCaughtUp, TopicFollower
from packhorse_services.publisher.settings import Settings
from tests.harness.publishing import AGENT, Author, AwayJournal
from tests.harness.waiting import eventually

CALLERS = {
    "admin": Principal("admin", frozenset({"admin"})),
    "editor": Principal("editor", frozenset({"distribute"}), ("/content/site",)),
    "viewer": Principal("viewer", frozenset({"queues:read"})),
    "nobody": Principal("nobody", frozenset()),
}

_PATIENCE_S = 120.0


class _Tokens:
    async def principal(self, token: str) -> Principal | None:
        return CALLERS.get(token)


class PublisherService:
    """The service, its author, and subscribers that the test plays."""

    def __init__(
        self,
        database_url: str,
        folder: Path,
        *,
        journal_url: str = "",
        sent_within_s: float = _PATIENCE_S,
        **settings: Any,
    ) -> None:
        """`sent_within_s` is how long the answer to a command waits until it is sent."""
        self._sent_within_s = sent_within_s
        journal = open_journal(journal_url or f"memory://{folder}", client_name="tests")
        self.journal = AwayJournal(journal)
        self.topics = Topics.named(str(settings.get("topic_prefix", "aemdistribution")), {})
        blobs = open_blobs(str(folder / "blobs"))
        self.author = Author(database_url, journal, blobs, self.topics)
        self._settings = Settings.model_validate(
            {"database_url": database_url, "agent": AGENT, "authentication": False, **settings}
        )
        self.client: httpx.AsyncClient

    def run(self, scenario: Callable[["PublisherService"], Awaitable[None]]) -> None:
        """Start everything, play the scenario, stop everything."""
        backends = Backends(
            self.journal, self.author.blobs, Authenticator(_Tokens()), SystemClock()
        )
        self.parts = parts = publisher(self._settings, backends)

        async def play() -> None:
            transport = httpx.ASGITransport(parts.app)
            async with (
                parts.app.router.lifespan_context(parts.app),
                httpx.AsyncClient(
                    transport=transport, base_url="http://publisher", headers=as_("admin")
                ) as self.client,
            ):
                await scenario(self)

        followers = [
            one for one in parts.components if isinstance(one, TopicFollower | StatusWatermark)
        ]
        self.outcome_loop = next(one for one in parts.components if isinstance(one, OutcomeLoop))
        self.watermark = next(one for one in followers if isinstance(one, StatusWatermark))
        # What a failed scenario left open would be another test's failure.
        with closing(self.author), _patient(self._sent_within_s), _together(parts.components):
            eventually(lambda: all(map(_caught_up, followers)), interval=0.01)
            asyncio.run(play())

    async def distribute(
        self, *paths: str, action: str = "ADD", headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        body = {"action": action, "paths": list(paths), **body}
        return await self.client.post("/distribute", json=body, headers=headers)

    async def dry_run(self, *paths: str, action: str = "ADD", **body: Any) -> httpx.Response:
        body = {"action": action, "paths": list(paths), **body}
        return await self.client.post("/distribute/dry-run", json=body)

    async def accepted(self, *paths: str, **options: Any) -> dict[str, Any]:
        answer = await self.distribute(*paths, **options)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def get(self, path: str, **headers: str) -> Any:
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def until_ready(self) -> None:
        """Wait for what `/readyz` says; it may be a second old."""

        async def ready() -> bool:
            return (await self.client.get("/readyz")).status_code == 200

        await self.until(ready)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(120):
            while not await holds():
                await asyncio.sleep(0.02)

    async def announce(
        self, name: str, offset: int, *, shown: int | None = None, **known: Any
    ) -> None:
        """Announce a subscriber, and wait until the publisher shows its offset, or `shown`."""
        subscription = SubscriberState(AGENT, offset, settled_offset=offset)
        given = {key: known.pop(key) for key in list(known) if hasattr(subscription, key)}
        subscription = replace(subscription, **given)
        self.report(DiscoveryMessage(name, (subscription,), **known))

        async def heard() -> bool:
            answer = await self.client.get(f"/subscribers/{name}")
            if answer.status_code != 200:
                return False
            seen = answer.json()
            wanted = subscription.offset if shown is None else shown
            reported = (seen["offset"], seen["attempts"]) == (wanted, subscription.retries)
            certain = self.watermark.settled(name, subscription)
            return reported and certain == max(
                subscription.settled_offset, subscription.started_offset
            )

        await self.until(heard)

    def report(self, message: DiscoveryMessage) -> None:
        """Append an announcement."""
        self._append(self.topics.discovery, encode_discovery(message), message.subscriber)

    def status(self, name: str, offset: int, status: Status, **more: Any) -> None:
        packages = self.author.journal.identity(self.topics.package)
        message = replace(StatusMessage(name, AGENT, packages, offset, status), **more)
        self._append(self.topics.status, encode_status(message), None)

    def _append(self, topic: str, encoded: Encoded, key: str | None) -> None:
        record = Outgoing(encoded.value, encoded.headers, key)
        self.author.journal.append(topic, record).result()


@contextmanager
def _patient(sent_within_s: float) -> Iterator[None]:
    """Let answers wait for a busy machine as well, not only for a journal that is away."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(issuing, "_SENT_WITHIN_S", sent_within_s)
        patched.setattr(submission, "_ANSWER_S", _PATIENCE_S)
        patched.setattr(submission, "_STATE_S", _PATIENCE_S)
        yield


def _caught_up(follower: TopicFollower | StatusWatermark) -> bool:
    try:
        follower.check()
    except (NotCaughtUp, NotSettled):
        return False
    return True


@contextmanager
def _together(components: Sequence[Component]) -> Iterator[None]:
    """Start components in order, stop them all at once: each takes a poll to notice."""
    for component in components:
        component.start()
    try:
        yield
    finally:
        with ThreadPoolExecutor(len(components)) as pool:
            list(pool.map(lambda component: component.stop(120), components))


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def kind(answer: httpx.Response) -> tuple[int, str]:
    """Return the status of a problem, and the last word of its type."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].rpartition("/")[2]


def sent(s: PublisherService) -> list[tuple[Action, tuple[str, ...]]]:
    """Return the action and all paths of each package in the journal."""
    entries = [placed.message.entry for placed in s.author.journaled()]
    return [(entry.action, (*entry.paths, *entry.deep_paths)) for entry in entries]
