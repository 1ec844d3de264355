"""Giving commands to subscribers: what may be asked of whom, and the row that answers for it."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.errors import Permanent
from packhorse.messaging.api import Bounds, Journal, JournalUnavailable
from packhorse.runtime.waiting import turn
from packhorse.wire.messages import (
    ClearCommand,
    Command,
    ControlCommand,
    DesiredState,
    ResetCommand,
    RetryCommand,
    SubscriptionState,
)
from packhorse_services.publisher.commands import command_rows
from packhorse_services.publisher.commands.clearing import Bound, bound_of
from packhorse_services.publisher.commands.command_rows import CommandQuery, StoredCommand
from packhorse_services.publisher.commands.command_sender import CommandSender
from packhorse_services.publisher.queues.queue import Queues

T = TypeVar("T")

_SENT_WITHIN_S = 3.0
_ASK_AT_ONCE = 2


class UnknownCommand(Permanent):
    """No command of this id was given to this publisher agent in the last 30 days."""


class NotStopped(Permanent):
    """The offset of a subscription that may be importing is not changed."""


class ClearOutsideLog(Permanent):
    """The offset is neither in the log nor just before its oldest record."""


class CommandIssuer:
    """The commands of one publisher agent, in its author's database."""

    def __init__(
        self,
        pool: Lender,
        journal: Journal,
        package_topic: str,
        queues: Queues,
        sender: CommandSender,
    ) -> None:
        self._pool, self._journal, self._package_topic = pool, journal, package_topic
        self._queues, self._sender = queues, sender
        self._asking = asyncio.Semaphore(_ASK_AT_ONCE)
        self.agent = queues.agent

    async def bound(self, subscriber: str, *, up_to: int | None) -> Bound:
        """Return up to where a clear would go, and what it would remove. Raises as `clear`."""
        queue = await self._queues.queue(subscriber)
        return bound_of(queue, self._queues, up_to=up_to, seen_tag=None)

    async def clear(
        self, subscriber: str, *, up_to: int | None, seen_tag: str | None, user: str
    ) -> tuple[StoredCommand, Bound]:
        """Order a subscriber to remove what it has still to import, up to offset `up_to`.

        Without one: up to the newest in the queue that `seen_tag` names, else the newest now.

        Raises:
            UnknownSubscriber, NotEditable, HeadMoved, BeyondNewest, QueueLoading: nothing was
                issued.
        """
        queue = await self._queues.queue(subscriber)
        bound = bound_of(queue, self._queues, up_to=up_to, seen_tag=seen_tag)
        ids = self._ids(subscriber)
        command = ClearCommand(*ids, bound.offset, user, journal_id=queue.journal_id)
        return await self._issue(command), bound

    async def control(self, subscriber: str, desired: DesiredState, *, user: str) -> StoredCommand:
        """Order a subscriber to run, pause or stop, until another command.

        Always a command, also when it seems to be so already: what is announced is what was.
        Raises `UnknownSubscriber`, and `JournalUnavailable` when nothing was issued.
        """
        command = ControlCommand(
            *self._ids(subscriber), desired, user, journal_id=await self._identity(subscriber)
        )
        return await self._issue(command)

    async def retry(self, subscriber: str, *, user: str) -> StoredCommand:
        """Order a subscriber to try the first waiting package again at once.

        Raises `UnknownSubscriber`, and `JournalUnavailable` when nothing was issued.
        """
        identity = await self._identity(subscriber)
        return await self._issue(RetryCommand(*self._ids(subscriber), user, journal_id=identity))

    async def reset(self, subscriber: str, offset: int, *, user: str) -> StoredCommand:
        """Order a stopped subscriber to go on behind `offset`.

        Raises `UnknownSubscriber`, `NotStopped`, `ClearOutsideLog`; nothing was issued then.
        """
        found, _ = self._queues.subscriber(subscriber)
        if found.subscription.state is not SubscriptionState.STOPPED:
            raise NotStopped(
                f"{subscriber} is not stopped; stop it first (`packhorse stop subscriber "
                f"{subscriber}`, or PUT /subscribers/{quote(subscriber, safe='')}/stop), and wait "
                "until it says STOPPED"
            )
        identity, bounds = await self._ask(self._log)
        if not bounds.oldest - 1 <= offset < bounds.next:
            raise ClearOutsideLog(
                f"name an offset from {bounds.oldest - 1} (the oldest package comes next) to "
                f"{bounds.next - 1} (nothing of what is in the log comes again)"
            )
        command = ResetCommand(*self._ids(subscriber), offset, user, journal_id=identity)
        return await self._issue(command)

    async def find(self, command_id: str) -> StoredCommand:
        """Return a command. Raises `UnknownCommand`."""
        found = await asyncio.to_thread(self._find, command_id)
        if found is None:
            raise UnknownCommand(f"no command {command_id}, or it is older than 30 days")
        return found

    async def page(self, wanted: CommandQuery) -> Sequence[StoredCommand]:
        """Return commands as `command_search.page` does."""
        from packhorse_services.publisher.commands.command_search import page

        def read() -> Sequence[StoredCommand]:
            with writing(self._pool.connection) as connection:
                return page(connection, self.agent, wanted)

        return await asyncio.to_thread(read)

    async def _identity(self, subscriber: str) -> str:
        """Return the id of the log that a command for a known subscriber is about."""
        self._queues.subscriber(subscriber)
        return await self._ask(lambda: self._journal.identity(self._package_topic))

    async def _ask(self, journal: Callable[[], T]) -> T:
        """Few at a time: a journal that is away would hold the threads that all else needs."""
        busy = JournalUnavailable("others wait for its answer for too long")
        async with turn(self._asking, _SENT_WITHIN_S, busy):
            return await asyncio.to_thread(journal)

    def _ids(self, subscriber: str) -> tuple[str, str, str]:
        return uuid.uuid4().hex, subscriber, self.agent

    def _log(self) -> tuple[str, Bounds]:
        # In this order: offsets of a topic that was made anew in between are then refused.
        identity = self._journal.identity(self._package_topic)
        return identity, self._journal.bounds(self._package_topic)

    def _find(self, command_id: str) -> StoredCommand | None:
        with writing(self._pool.connection) as connection:
            return command_rows.find(connection, self.agent, command_id)

    async def _issue(self, command: Command) -> StoredCommand:
        """Commit a command, and return its row once it is sent, or ISSUED when that takes long."""

        def write() -> None:
            with writing(self._pool.connection) as connection:
                command_rows.write(connection, command)

        await asyncio.to_thread(write)
        self._sender.kick()
        try:
            async with asyncio.timeout(_SENT_WITHIN_S):
                return await self._sent(command.command_id)
        except TimeoutError:
            return await self.find(command.command_id)

    async def _sent(self, command_id: str) -> StoredCommand:
        while True:
            with self._sender.rounds.subscribed() as round_ended:
                found = await self.find(command_id)
                if found.state != "ISSUED":
                    return found
                await round_ended.wait()
