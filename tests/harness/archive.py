"""A journal with some of everything in it, for tests of what reads journals and archives."""

from collections.abc import Collection, Iterator, Sequence

from packhorse.messaging.api import Appended, Journal, Outgoing
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_discovery, encode_distributed, encode_status
from packhorse.wire.command_codec import encode_command, encode_command_status
from packhorse.wire.messages import (
    Action,
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    DiscoveryMessage,
    PackageBody,
    PackageDistributed,
    PackageEntry,
    PackageMessage,
    ResetCommand,
    Status,
    StatusMessage,
    SubscriberState,
    SubscriptionState,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Encoded
from packhorse.wire.topics import Topics
from tests.harness.journals import answered, everything

AGENT = "main"
DEADLINE_S = 180.0

Addressed = tuple[str, str | None, Encoded]
"""The topic, the record's key, and the message."""


def package(number: int, body: PackageBody | None = None, length: int = 0) -> PackageMessage:
    """Return a package of one path, with a body or as one that deletes."""
    action = Action.DELETE if body is None else Action.ADD
    entry = PackageEntry(
        package_id(number),
        AGENT,
        action,
        (f"/content/p{number}",),
        user="ann",
        producer="p",
        epoch=1,
        sequence=number,
        body_length=length,
        accepted_ms=1_700_000_000_000 + number,
    )
    return PackageMessage(entry, body, "publisher-1")


def package_id(number: int) -> str:
    """Return the id of the package with this number."""
    return f"dstrpck-{1_700_000_000_000 + number}-{number:016x}"


def status(number: int, subscriber: str = "s-1") -> StatusMessage:
    """Return what a subscriber says that it imported package `number` at that offset."""
    return StatusMessage(
        subscriber, AGENT, "j", number, Status.IMPORTED, package_id(number), decided_ms=number
    )


def announcement(number: int, subscriber: str = "s-1") -> DiscoveryMessage:
    """Return an announcement of one subscription that has processed `number`."""
    subscription = SubscriberState(AGENT, number, state=SubscriptionState.IDLE, journal_id="j")
    return DiscoveryMessage(subscriber, (subscription,), editable=True, announced_ms=number)


def command(number: int, subscriber: str = "s-1") -> Command:
    """Return a command: of each kind in turn."""
    name = f"c-{number}"
    if number % 3 == 0:
        return ClearCommand(name, subscriber, AGENT, number, "ann", number, "j")
    if number % 3 == 1:
        return ControlCommand(name, subscriber, AGENT, DesiredState.PAUSE, "ann", number, "j")
    return ResetCommand(name, subscriber, AGENT, number, "ann", number, "j")


def of_everything(numbers: Sequence[int], topics: Topics) -> Iterator[Addressed]:
    """Yield, for each number, a message of each kind."""
    for number in numbers:
        name = f"s-{number % 5}"
        reported = PackageDistributed(package_id(number), AGENT, number, ("/a",), imported=(name,))
        applied = CommandStatusMessage(f"c-{number}", name, AGENT, CommandState.APPLIED)
        yield topics.package, None, encode_package(package(number))
        yield topics.status, None, encode_status(status(number, name))
        yield topics.status, None, encode_command_status(applied)
        yield topics.discovery, name, encode_discovery(announcement(number, name))
        yield topics.command, name, encode_command(command(number, name))
        yield (
            topics.event,
            name,
            encode_distributed(reported, source="/t", time="2026-01-01T00:00:00Z"),
        )


KINDS = 6
"""How many records `of_everything` makes for a number."""


def fill(
    journal: Journal, topics: Topics, numbers: Sequence[int], only: Collection[str] = ()
) -> None:
    """Create the topics unless they are there, and append a message of each kind a number.

    `only` names the topics that get some; without it, all do.
    """
    answered(lambda: journal.create_topics(standard_topics(topics, partitions=2)))
    messages = of_everything(numbers, topics)
    append(journal, [one for one in messages if not only or one[0] in only])


def append(journal: Journal, messages: Sequence[Addressed]) -> list[Appended]:
    """Append messages and wait until they are in the journal."""
    futures = [
        journal.append(topic, Outgoing(encoded.value, encoded.headers, key))
        for topic, key, encoded in messages
    ]
    return [future.result(DEADLINE_S) for future in futures]


def everything_in(journal: Journal, topics: Topics) -> dict[tuple[str, int, int], bytes]:
    """Return every record's value by topic, partition and offset, read to the end."""
    names = (topics.package, topics.status, topics.discovery, topics.command, topics.event)
    records = [record for topic in names for record in everything(journal, topic)]
    return {(one.topic, one.partition, one.offset): one.value for one in records}
