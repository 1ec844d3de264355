"""Clearing a queue: one command to the subscriber, for what the caller has seen (R19)."""

import asyncio
import logging
import re
import uuid
from dataclasses import dataclass

from packhorse.clock import Clock
from packhorse.errors import Permanent
from packhorse.messaging.api import Journal, Outgoing
from packhorse.wire.command_codec import encode_command
from packhorse.wire.messages import ClearCommand
from packhorse_services.publisher.queues.queue import Queue, Queues

logger = logging.getLogger(__name__)

_TAG = re.compile(r'(?:W/)?"(-?[0-9]{1,19})-(-?[0-9]{1,19})-[0-9a-f]{8}"')


class NotEditable(Permanent):
    """The subscriber takes no clear commands."""


class HeadMoved(Permanent):
    """The queue's head is not the one that the caller saw."""


class BeyondNewest(Permanent):
    """The offset is above all that is in the queue; packages to come can't be cleared."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A command that is on its way, and how many packages it was meant for when it was sent."""

    command: ClearCommand
    packages: int


class Clearing:
    """Sends clear commands for one publisher agent."""

    def __init__(self, journal: Journal, topic: str, queues: Queues, clock: Clock) -> None:
        self._journal, self._topic, self._queues, self._clock = journal, topic, queues, clock

    async def clear(
        self, subscriber: str, *, up_to: int | None, seen_tag: str | None, user: str
    ) -> Cleared:
        """Send a command for the packages up to offset `up_to`.

        Without one: up to the newest in the queue that `seen_tag` names, else the newest now.
        Returns once the journal has the command; one sent twice does no harm.

        Raises:
            UnknownSubscriber, NotEditable, HeadMoved, BeyondNewest: nothing was sent.
            NotAppended, AppendUnknown: try again.
        """
        queue = await self._queues.queue(subscriber)
        if not queue.subscriber.editable:
            raise NotEditable(
                f"{subscriber} is not editable: its queue can't be cleared from here, since "
                "subscribers of one farm would end up with different content"
            )
        offset = _limit(queue, up_to, _newest_seen(queue, seen_tag))
        command = ClearCommand(
            command_id=uuid.uuid4().hex,
            subscriber=subscriber,
            publisher_agent=self._queues.agent,
            offset=offset,
            user=user,
            issued_ms=self._clock.wall_ms(),
        )
        encoded = encode_command(command)
        record = Outgoing(encoded.value, encoded.headers, key=subscriber)
        await asyncio.wrap_future(self._journal.append(self._topic, record))
        packages = (queue.length or 0) - (self._queues.feed.cache.length(offset) or 0)
        logger.info(
            "clear command sent",
            extra={"subscriber": subscriber, "offset": offset, "command_id": command.command_id},
        )
        return Cleared(command, max(0, packages))


def _newest_seen(queue: Queue, tag: str | None) -> int | None:
    """Return the newest offset that the caller saw. Raises `HeadMoved`."""
    if tag is None or tag.strip() == "*":
        return None
    seen = _TAG.fullmatch(tag.strip())
    head = queue.head.offset if queue.head else -1
    if seen is None or int(seen[1]) != head:
        raise HeadMoved("the queue's head is another one by now; read the queue again")
    return int(seen[2])


def _limit(queue: Queue, up_to: int | None, newest_seen: int | None) -> int:
    newest = max(queue.newest, queue.lane.offset)
    if up_to is None:
        return newest if newest_seen is None else min(newest, max(newest_seen, queue.lane.offset))
    if up_to > newest:
        raise BeyondNewest(
            f"the newest package in the queue has offset {newest}; name that or less"
        )
    return up_to
