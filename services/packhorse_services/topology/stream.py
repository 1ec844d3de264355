"""One client's stream of the topology's events."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from packhorse.runtime.problems import Problem
from packhorse.runtime.streams import Life
from packhorse_services.topology.feed import Feed, Told
from packhorse_services.topology.schemas import GapNews

RETRY_MS = 2_000
_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """The last event that a client has seen, and the process that numbered it."""

    run: str
    number: int

    def __str__(self) -> str:
        """Return it as the id of an event."""
        return f"{self.run}-{self.number}"


def read_position(text: str) -> Position:
    """Return the position that a client sends back. Raises `Problem` 422."""
    found = _ID.fullmatch(text)
    if found is None:
        wrong = {"pointer": "header/last-event-id", "detail": "no id of an event of ours"}
        why = "Last-Event-ID is not the id of an event; leave it out to begin now"
        raise Problem(422, detail=why, errors=[wrong])
    return Position(found[1], int(found[2]))


class Follower:
    """Where one client is: no waiting, no I/O.

    A newcomer is told INIT. Who comes back is told what it has missed; where that is not known
    any more, a gap, and INIT again as soon as there is a view that holds.
    """

    def __init__(self, feed: Feed, seen: Position | None) -> None:
        self._feed = feed
        self._number: int | None = None
        self._gap: GapNews | None = None
        if seen is not None and seen.run == feed.run:
            self._number = seen.number
        elif seen is not None:
            self._gap = GapNews(reason="ANOTHER_PROCESS")

    def news(self) -> Sequence[Told]:
        """Return what the client has to hear now, and count it as heard."""
        missed = None if self._number is None else self._feed.after(self._number)
        if missed is None and self._number is not None:
            self._gap, self._number = GapNews(reason="FORGOTTEN"), None
        told = list(missed or [])
        if self._gap is not None:
            told.append(Told("gap", self._gap.model_dump_json(), 0))
            self._gap = None
        if self._number is None and (first := self._feed.first()) is not None:
            told.append(first)
        for one in told:
            self._number = one.number or self._number
        return told


class EventStream:
    """Gives the blocks to send, until its life is over or the process ends."""

    def __init__(self, feed: Feed, seen: Position | None, *, life_s: float = 300.0) -> None:
        self._feed = feed
        self._follower = Follower(feed, seen)
        self._life = Life(life_s)

    async def blocks(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events as they come; the first block has only `retry`."""
        yield ServerSentEvent(retry=RETRY_MS, comment="events follow")
        while not self._over():
            with self._feed.changes.subscribed() as change:
                told = self._follower.news()
                for one in told:
                    yield ServerSentEvent(event=one.name, raw_data=one.data, id=self._id(one))
                    if self._feed.ended:
                        return
                if not told and not self._over():
                    await self._life.wait(change)

    def _id(self, told: Told) -> str | None:
        return str(Position(self._feed.run, told.number)) if told.number else None

    def _over(self) -> bool:
        return self._feed.ended or self._life.over
