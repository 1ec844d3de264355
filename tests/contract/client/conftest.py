"""The clients of all languages, against a service that gives prepared answers."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from packhorse import AsyncClient, Client
from packhorse.client import awaiting, blocking
from tests.contract.client.library import Library
from tests.harness.client_runners import LANGUAGES, Runner, Told, running
from tests.harness.played_service import Service, played_service


@pytest.fixture
def service() -> Iterator[Service]:
    with played_service() as played:
        yield played


class Do(Protocol):
    """Makes a call of a client by its name, and returns what it returns."""

    def __call__(self, call: str, *args: Any, **options: Any) -> Any: ...


@pytest.fixture(params=["blocking", "awaiting"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No production pause is waited for; each is kept."""
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    # Of the client alone: what other threads of the process wait for is none of its pauses.
    monkeypatch.setattr(blocking, "time", SimpleNamespace(**vars(time) | {"sleep": paused.append}))
    monkeypatch.setattr(awaiting, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": pause}))
    return paused


@pytest.fixture
def do(kind: str, service: Service) -> Do:
    def blocked(call: str, *args: Any, **options: Any) -> Any:
        with Client(**where(service, options)) as client:
            return getattr(client, call)(*args, **options)

    async def awaited(call: str, *args: Any, **options: Any) -> Any:
        async with AsyncClient(**where(service, options)) as client:
            return await getattr(client, call)(*args, **options)

    def run(call: str, *args: Any, **options: Any) -> Any:
        return asyncio.run(awaited(call, *args, **options))

    return blocked if kind == "blocking" else run


def where(service: Service, options: dict[str, Any]) -> dict[str, Any]:
    url = options.pop("url", service.url)
    patience_s = options.pop("patience_s", 60.0)
    others = {"content": url, "jobs": url, "topology": url}
    return {"url": url, "token": "secret", "patience_s": patience_s, **others}


@pytest.fixture(scope="session")
def runner_of() -> Iterator[Callable[[str], Runner]]:
    """The program in a language, started when it is first asked for."""
    with ExitStack() as programs:

        @cache
        def started(language: str) -> Runner:
            return programs.enter_context(running(language))

        yield started


class Ask(Protocol):
    """Makes a call with a client of any language and says what came of it."""

    def __call__(self, call: str, **asked: Any) -> Told: ...


@pytest.fixture(params=["blocking", "awaiting", *LANGUAGES])
def ask(
    request: pytest.FixtureRequest,
    service: Service,
    runner_of: Callable[[str], Runner],
    no_pauses: list[float],
) -> Ask:
    """`patience` is in seconds, for ever below 0; `repeatable` is said of a client in another
    language whose requests may all arrive twice.
    """
    if request.param not in LANGUAGES:
        return Library(request.param, service.url, no_pauses).call
    runner = runner_of(request.param)
    usual = {"url": service.url, "token": "secret", "patience": 60.0}
    return lambda call, **asked: runner.call(call, **{**usual, **asked})
