"""The library's own clients, asked as the programs in other languages are."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import httpx

from packhorse import AsyncClient, Client
from packhorse.client.errors import ClientError
from packhorse.client.following import Gap, StreamEvent
from tests.harness.client_runners import Told


class Library:
    """Makes one call of `Client` or `AsyncClient` and says what came of it."""

    def __init__(self, kind: str, url: str, paused: list[float]) -> None:
        self._blocking, self._url, self._paused = kind == "blocking", url, paused

    def call(self, call: str, **asked: Any) -> Told:
        patience_s = asked.pop("patience", 60.0)
        asked.pop("repeatable", None)
        if call == "events":
            asked.pop("path")
        url = asked.pop("url", self._url)
        where = {"url": url, "content": url, "jobs": url, "topology": url, "token": "secret"}
        settings = {**where, "patience_s": max(0.0, patience_s)}
        settings["timeout"] = asked.pop("timeout", 30.0)
        result: Any
        try:
            if call == "produce":
                result = self._produced(settings, **asked)
            elif call == "events":
                result = self._followed(settings, **asked)
            else:
                named = [asked.pop(name) for name in NAMED if name in asked]
                arguments, options = [*named, *BODIES.get(call, ())], asked
                result = RESULTS[call](self._made(settings, call, arguments, options))
        except ClientError as error:
            told = getattr(error, "status", 0), getattr(error, "kind", "")
            return Told(None, *told, self._paused, str(error))
        return Told(result, 200, "", self._paused)

    def _made(
        self,
        settings: Mapping[str, Any],
        call: str,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
    ) -> Any:
        async def awaited() -> Any:
            async with AsyncClient(**settings) as client:
                return await getattr(client, call)(*arguments, **options)

        if not self._blocking:
            return asyncio.run(awaited())
        with Client(**settings) as client:
            return getattr(client, call)(*arguments, **options)

    def _produced(
        self, settings: Mapping[str, Any], name: str, path: str, sequences: Sequence[int]
    ) -> list[bool]:
        numbered = [(one, one) for one in sequences]

        async def awaited() -> list[bool]:
            async with AsyncClient(**settings) as client, client.producer(name) as source:
                left = list(source.after_last(numbered))
                return [(await source.send(one, path)).repeated for one, _ in left]

        if not self._blocking:
            return asyncio.run(awaited())
        with Client(**settings) as client, client.producer(name) as source:
            return [source.send(one, path).repeated for one, _ in source.after_last(numbered)]

    def _followed(
        self, settings: Mapping[str, Any], after: str, count: int, silence: float = 45.0
    ) -> list[dict[str, Any]]:
        timeout = httpx.Timeout(30.0, read=silence)

        async def awaited() -> list[StreamEvent]:
            async with AsyncClient(**settings) as client:
                client.stream_timeout = timeout
                found: list[StreamEvent] = []
                async for event in client.events("package", after=after):
                    found.append(event)
                    if len(found) == count:
                        break
                return found

        if self._blocking:
            with Client(**settings) as client:
                client.stream_timeout = timeout
                events = list(islice(client.events("package", after=after), count))
        else:
            events = asyncio.run(awaited())
        return [
            {"kind": one.kind, "id": one.id, "data": one.data, "gap": isinstance(one, Gap)}
            for one in events
        ]


NAMED = ("path", "subscriber", "topic", "number")
"""What a call is about; everything else is an option of it."""
BODIES: Mapping[str, Sequence[Any]] = {
    "add_job": [{"size": 3}],
    "put_node": ["page", {"title": "One"}],
}

RESULTS: Mapping[str, Callable[[Any], Any]] = {
    "distribute": lambda found: {"id": found.id, "repeated": found.repeated},
    "queues": lambda found: [one.subscriber for one in found],
    "errors": lambda found: [{"offset": one.offset, "reason": one.reason} for one in found],
    "clear": lambda found: {"command_id": found.command_id, "up_to_offset": found.up_to_offset},
    "add_job": lambda found: {"number": found.job.number, "verdict": found.verdict},
    "job": lambda found: {
        "number": found.number,
        "state": found.state,
        "size": found.properties.get("size"),
    },
    "remove_job": lambda _: None,
    "put_node": lambda found: {"path": found.path},
    "node": lambda found: {
        "path": found.path,
        "type": found.type,
        "title": found.properties.get("title"),
    },
    "topology": lambda found: {
        "current": found.current,
        "instances": [len(one.instances) for one in found.clusters],
    },
}
