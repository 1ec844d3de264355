"""A client whose requests a test answers; nothing is sent, and pauses pass at once."""

import json
from collections.abc import Callable
from typing import Any

from packhorse.client.addresses import Addresses
from packhorse.client.blocking import Client
from packhorse.client.exchange import Answer, Effect, Pause, Request
from packhorse.client.patience import Patience
from packhorse.client.problems import Words

Respond = Callable[[Request], Any]
"""Gives a document, a document with its ETag, or the error that is raised instead."""


class ScriptedClient(Client):
    """Keeps the requests, and the seconds that were paused."""

    def __init__(self, respond: Respond, words: Words | None = None) -> None:
        self.requests: list[Request] = []
        self.paused: list[float] = []
        self._respond = respond
        self._begin(Addresses(), 1.0, Patience(0.0), words or Words())

    def _connect(self, **options: object) -> None:
        pass

    def close(self) -> None:
        """Close nothing."""

    def _done(self, effect: Effect) -> Answer | float:
        if isinstance(effect, Pause):
            self.paused.append(effect.seconds)
            return sum(self.paused)
        self.requests.append(effect)
        given = self._respond(effect)
        if isinstance(given, Exception):
            raise given
        document, tag = given if isinstance(given, tuple) else (given, None)
        answer = Answer(
            "scripted", 200, {"etag": tag} if tag else {}, json.dumps(document).encode()
        )
        if error := effect.judge(answer):
            raise error
        return answer

    def sent(self) -> list[tuple[str, Any]]:
        """Return the paths and bodies of what was sent."""
        return [(one.path, one.body) for one in self.requests]


def in_turn(*answers: Any) -> Respond:
    """Answer the first request with the first one, and so on."""
    left = list(answers)
    return lambda _: left.pop(0)
