"""What both clients share of the sending: where to, and what httpx's answers and errors mean."""

import copy
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx
from httpx_sse import ServerSentEvent

from packhorse.client import addresses
from packhorse.client.addresses import Addresses
from packhorse.client.certificates import LoadedLate
from packhorse.client.errors import ClientError, NoAnswer, NoAnswerInTime, NotReached
from packhorse.client.exchange import Answer, Request, ServiceName
from packhorse.client.following import Block
from packhorse.client.patience import Patience, telling
from packhorse.client.problems import Words, refusal
from packhorse.runtime import tracing

LONGEST_REFUSAL = 1024**2
SILENCE_S = 45.0
"""A stream that is silent for longer is lost: there is a ping every 15 s."""


@dataclass(frozen=True, slots=True)
class Target:
    """One service, and what authenticates the requests to it."""

    url: str
    headers: dict[str, str]

    def arguments(self, request: Request) -> dict[str, Any]:
        """Return what httpx sends."""
        url = request.path if "://" in request.path else f"{self.url}{request.path}"
        headers = {**self.headers, **request.sendable_headers()}
        if present := tracing.traceparent():
            headers["traceparent"] = present
        return {"method": request.method, "url": url, "headers": headers}


class Targets:
    """Each service's target, looked for once."""

    def __init__(self, where: Addresses) -> None:
        self._where = where
        self._known: dict[tuple[ServiceName, str], Target] = {}

    def with_token(self, token: str | None) -> "Targets":
        """Return the same services for another token, or for none at all."""
        return Targets(replace(self._where, token=token, stack=None))

    def with_urls(self, urls: Mapping[ServiceName, str]) -> "Targets":
        """Return the same services and these."""
        return Targets(replace(self._where, urls={**self._where.urls, **urls}))

    def of(self, request: Request) -> Target:
        """Return where a request goes. Raises `Misused` when nothing says where that is."""
        named = request.service, request.subscriber
        if named not in self._known:
            headers = self._where.headers(request.service)
            self._known[named] = Target(self._where.url(*named), headers)
        return self._known[named]


class Configured:
    """What both clients begin with: where they send to, how patiently, and how errors read."""

    words: Words
    stream_timeout: httpx.Timeout
    _targets: Targets
    _patience: Patience

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        data: Path | str | None = None,
        timeout: float = 30.0,
        patience_s: float = 60.0,
        **others: str | None,
    ) -> None:
        """Connect to nothing yet.

        `url` is the publisher's; `content`, `subscriber` (one that is compared), `jobs`,
        `topology`, `pipeline`, `console` and `cleanup` are the others'. What is not given is taken
        from PACKHORSE_SERVER, PACKHORSE_CONTENT_SERVER, …, of the pipeline PACKHORSE_PIPELINE_URL,
        and PACKHORSE_TOKEN or PACKHORSE_TOKEN_FILE, else from the stack that runs on the folder
        `data` (PACKHORSE_DATA).
        `timeout` is for how many seconds nothing may come of an answer.

        Raises `Misused` for what is no URL or no token.
        """
        where = addresses.found(addresses.named(url, others), token, data)
        self._begin(where, timeout, telling(patience_s, "a request"), Words())

    @classmethod
    def of(
        cls,
        where: Addresses,
        *,
        timeout: float = 30.0,
        patience: Patience | None = None,
        words: Words | None = None,
    ) -> Self:
        """Return a client of these addresses, which sends nothing again unless it has patience."""
        client = cls.__new__(cls)
        client._begin(where, timeout, patience or Patience(0.0), words or Words())
        return client

    def acting_for(self, token: str | None) -> Self:
        """Return a client that sends another token, or none, over the connections of this one.

        For a program that asks for many callers, with the rights of each. Close only this one.
        """
        client = copy.copy(self)
        client._targets = self._targets.with_token(token)
        return client

    def reaching(self, urls: Mapping[ServiceName, str]) -> Self:
        """Return a client that knows further services by these URLs, for the same token.

        Over the connections of this one; close only this one.
        """
        client = copy.copy(self)
        client._targets = self._targets.with_urls(urls)
        return client

    def _begin(self, where: Addresses, timeout: float, patience: Patience, words: Words) -> None:
        self.words, self._targets, self._patience = words, Targets(where), patience
        self.stream_timeout = httpx.Timeout(timeout, read=SILENCE_S)
        self._connect(timeout=timeout, verify=LoadedLate())

    def _connect(self, **options: Any) -> None:
        raise NotImplementedError


def read(response: httpx.Response) -> bytes:
    """Return an answer's body; of a refusal, its beginning."""
    if response.is_success:
        return b"".join(response.iter_bytes())
    return next(response.iter_bytes(LONGEST_REFUSAL), b"")


async def aread(response: httpx.Response) -> bytes:
    """Return what `read` does, for asyncio."""
    if response.is_success:
        return b"".join([chunk async for chunk in response.aiter_bytes()])
    return await anext(response.aiter_bytes(LONGEST_REFUSAL), b"")


def answered(response: httpx.Response, content: bytes, request: Request, words: Words) -> Answer:
    """Return an answer with its body. Raises the `Refused` that it is.

    The response itself must not keep the body: it is freed late, by the collector of cycles.
    """
    answer = Answer(str(response.url), response.status_code, dict(response.headers), content)
    with_token = "Authorization" in response.request.headers
    error = refusal(answer, words, with_token=with_token) or request.judge(answer)
    if error is not None:
        raise error
    return answer


async def in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks that come from a file, and keep no event loop waiting."""
    import asyncio  # commands have no event loop

    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def lost(error: Exception, url: str, words: Words, *, stream: bool = False) -> ClientError:
    """Return what a failed exchange means."""
    if isinstance(error, httpx.PoolTimeout):
        return NotReached(f"{url} was not asked: all connections of this client are in use")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NotReached(_nobody(error, url, words))
    if stream:
        return NoAnswer(f"{url} was lost ({str(error) or type(error).__name__})")
    if isinstance(error, httpx.TimeoutException):
        return NoAnswerInTime(f"{url} gave no answer in time")
    return NoAnswer(_nobody(error, url, words))


def _nobody(error: Exception, url: str, words: Words) -> str:
    return f"nobody answers at {url} ({error}); is it running, and is {words.address} right?"


def block_of(event: ServerSentEvent) -> Block:
    """Return a block as the core takes it."""
    return Block(event.event, event.data, event.id, event.retry)
