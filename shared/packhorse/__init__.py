"""packhorse: content distributed exactly once, in order, to many subscriber databases.

What a program needs is here: `App` does jobs and hears events, `Client` and `AsyncClient` ask the
services over HTTP, `Follower` reads the journal, `Topology` knows who lives. Each name is loaded
when it is first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packhorse.app.application import App
    from packhorse.app.follower import AnotherLog, Follower, RecordsMissed
    from packhorse.app.topology import Topology
    from packhorse.client.awaiting import AsyncClient
    from packhorse.client.blocking import Client
    from packhorse.client.errors import ClientError, Fenced, NoAnswer, NotInTime, Refused
    from packhorse.client.following import Gap, StreamEvent
    from packhorse.jobs.consumer import Cancel, Outcome, Result, Retry

__version__ = "0.1.0"

__all__ = [
    "AnotherLog",
    "App",
    "AsyncClient",
    "Cancel",
    "Client",
    "ClientError",
    "Fenced",
    "Follower",
    "Gap",
    "NoAnswer",
    "NotInTime",
    "Outcome",
    "RecordsMissed",
    "Refused",
    "Result",
    "Retry",
    "StreamEvent",
    "Topology",
]

_HOMES = {
    "AnotherLog": "packhorse.app.follower",
    "App": "packhorse.app.application",
    "AsyncClient": "packhorse.client.awaiting",
    "Cancel": "packhorse.jobs.consumer",
    "Client": "packhorse.client.blocking",
    "ClientError": "packhorse.client.errors",
    "Fenced": "packhorse.client.errors",
    "Follower": "packhorse.app.follower",
    "Gap": "packhorse.client.following",
    "NoAnswer": "packhorse.client.errors",
    "NotInTime": "packhorse.client.errors",
    "Outcome": "packhorse.jobs.consumer",
    "RecordsMissed": "packhorse.app.follower",
    "Refused": "packhorse.client.errors",
    "Result": "packhorse.jobs.consumer",
    "Retry": "packhorse.jobs.consumer",
    "StreamEvent": "packhorse.client.following",
    "Topology": "packhorse.app.topology",
}


def __getattr__(name: str) -> Any:
    """Return a public name, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*globals(), *_HOMES])
