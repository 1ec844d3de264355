"""A worker of a subscriber that follows its commands, as long as a block lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from packhorse.wire.messages import CommandState, DesiredState, Status
from packhorse_services.subscriber.commands.follower import (
    CommandFollower,
    CommandListeners,
    CommandsBehind,
)
from packhorse_services.subscriber.commands.handler import CommandHandler
from tests.harness.feed import TOPICS, Feed
from tests.harness.subscriber import Worker
from tests.harness.waiting import eventually


@dataclass
class Following:
    """The follower of a worker that has the lease."""

    worker: Worker
    follower: CommandFollower

    def catch_up(self) -> None:
        """Return when every command that is in the log now is in force."""
        eventually(self._is_current, "every command is in force")

    def _is_current(self) -> bool:
        epoch = self.worker.lease.epoch()
        assert epoch is not None
        try:
            self.follower.catch_up(epoch)
        except CommandsBehind as error:  # which the product asks again after
            raise AssertionError(error) from error
        return True


@contextmanager
def following(worker: Worker, *, remembers: bool = False) -> Iterator[Following]:
    """Take the lease and follow the commands; at the block's begin all of them are read."""
    handler = CommandHandler(
        *(worker.name, (worker.agent,), worker.editable, worker.journal, TOPICS.package),
        remembers=remembers,
    )
    follower = CommandFollower(
        worker.connections.bookkeeper,
        TOPICS.command,
        handler,
        worker.lease,
        CommandListeners(worker.clears, worker.control),
    )
    worker.take_lease()
    follower.start()
    try:
        found = Following(worker, follower)
        found.catch_up()
        yield found
    finally:
        follower.stop(120)


def reported(worker: Worker, feed: Feed, command_id: str) -> list[tuple[CommandState, int, str]]:
    """Return what the journal says of a command, once all that is known was sent."""
    worker.send_statuses()
    return [
        (status.state, status.removed, status.reason)
        for status in feed.command_statuses()
        if status.command_id == command_id
    ]


def removed(worker: Worker, feed: Feed) -> list[tuple[int, str]]:
    """Return the offset and the command of each package that is reported as removed, in order."""
    worker.send_statuses()
    return [(s.offset, s.command_id) for s in feed.statuses() if s.status is Status.REMOVED]


def stopped(follower: Following, feed: Feed) -> None:
    """Stop the subscription and end its session."""
    feed.control("sub", DesiredState.STOP)
    follower.catch_up()
    follower.worker.end()


def reset(follower: Following, feed: Feed, offset: int) -> tuple[CommandState, int, str]:
    """Reset a stopped subscription, let it run again, and return how the command ended."""
    stopped(follower, feed)
    command_id = feed.reset("sub", offset)
    follower.catch_up()
    feed.control("sub", DesiredState.RUN)
    follower.catch_up()
    return reported(follower.worker, feed, command_id)[-1]
