"""Following a stream of server-sent events over lost connections: what each step means, no I/O."""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from packhorse.client.errors import ClientError, Misused, NoAnswer, Refused
from packhorse.client.exchange import FULL, Document, Request, ServiceName
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Something that happened; `id` goes on behind it: `after=event.id`."""

    kind: str
    id: str
    data: Any
    """A `Document`, or the text where it was no JSON."""


@dataclass(frozen=True, slots=True)
class Gap(StreamEvent):
    """Events that nobody can show any more; `data` says which, and why. Those behind it follow."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the stream, as it came."""

    event: str
    data: str
    id: str
    retry_ms: int | None


class Following:
    """One stream: where it goes on, and after which pause.

    The first connection is tried as long as the client is patient, a lost one is for ever; what the
    service refuses for good (401, 404) ends it. `waiting` is called with why a connection was lost,
    and with the seconds until the next try; else the log says it.
    """

    waiting: Callable[[ClientError, float], None]

    def __init__(self, path: str, service: ServiceName = "publisher", after: str = "") -> None:
        """Begin behind the event with the id `after`; "" begins now. Raises `Misused` for " "."""
        if after and not after.strip():
            raise Misused("the id of an event is empty; name one, or leave it out")
        self._path, self._service, self._last_id = path, service, after
        outage = Outage(logger, f"{path} can't be followed now", f"{path} is followed again")
        self.waiting, self._works = lambda error, _: outage.failed(error), outage.ended
        self._connected, self._wait_s = False, _FIRST_PAUSE_S
        self._first_try = math.inf

    def request(self) -> Request:
        """Return what opens the stream behind the last event."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        return Request("GET", self._path, self._service, headers=headers)

    def took(self, block: Block) -> StreamEvent | None:
        """Take a block; return the event in it, or None for one that only says how far it is."""
        self._connected = True
        self._works()
        if block.retry_ms and block.retry_ms > 0:
            self._wait_s = min(block.retry_ms, 1000 * _LONGEST_PAUSE_S) / 1000
        self._last_id = block.id or self._last_id
        if not block.data:
            return None
        made = Gap if block.event == "gap" else StreamEvent
        return made(block.event, block.id, _data(block.data))

    def ended(self, error: ClientError | None, now: float, patience_s: float) -> float:
        """Return after how many seconds to open it again; `now` is monotonic.

        Raises `error` when the service refuses for good, and when there was no connection yet and
        none can be expected for `patience_s` from the first try on.
        """
        wait_s = self._wait_s
        if error is not None:
            if isinstance(error, Refused):
                wait_s = max(wait_s, error.retry_after_s or 0)
            self._first_try = min(self._first_try, now)
            is_late = now - self._first_try + wait_s > patience_s
            if not is_passing(error) or (is_late and not self._connected):
                raise error
            self.waiting(error, wait_s)
        self._wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)
        return wait_s


def is_passing(error: ClientError) -> bool:
    """Return whether the same request may be taken later; a proxy says nothing of when."""
    if isinstance(error, Refused):
        return error.status == FULL or error.status >= 500
    return isinstance(error, NoAnswer)


def _data(text: str) -> Any:
    try:
        return json.loads(text, object_hook=Document)
    except ValueError:
        return text


EventKind = Literal["package", "status", "distributed", "subscriber"]
