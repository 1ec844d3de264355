"""A publisher that is nothing but appends, for tests of subscribers."""

import itertools
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node
from packhorse.messaging.api import Journal, Outgoing, Record
from packhorse.messaging.topics import standard_topics
from packhorse.packages.body import pack
from packhorse.packages.scope import type_of
from packhorse.wire.codec import decode_discovery, decode_status
from packhorse.wire.command_codec import decode_command_status, encode_command
from packhorse.wire.messages import (
    Action,
    ClearCommand,
    Command,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    DiscoveryMessage,
    Message,
    PackageEntry,
    PackageMessage,
    ResetCommand,
    RetryCommand,
    StatusMessage,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import message_type
from packhorse.wire.topics import Topics
from tests.harness.journals import everything

TOPICS = Topics()
AGENT = "main"
_numbers = itertools.count(1)


def page(path: str, version: int = 0, **more: Any) -> Node:
    return Node(path, "page", json.dumps({"version": version, **more}))


def bad_page(path: str) -> Node:
    """A node that the database refuses: its properties are no JSON object."""
    return Node(path, "page", "[]")


@dataclass
class Feed:
    """Appends packages to the journal, as a publisher would."""

    journal: Journal
    blobs: BlobStore
    producer: str = ""
    sequence: int = 0
    topics: Topics = TOPICS
    journal_url: str = ""
    """Where the journal is, for who does something to it."""

    def __post_init__(self) -> None:
        self.journal.create_topics(standard_topics(self.topics))

    def add(self, *nodes: Node, deep: Sequence[str] = (), agent: str = AGENT) -> int:
        shallow = [node.path for node in nodes if not deep]
        return self.append(self.message(Action.ADD, shallow, deep, nodes, agent))

    def delete(self, *paths: str, agent: str = AGENT) -> int:
        return self.append(self.message(Action.DELETE, paths, (), None, agent))

    def send(self, action: Action, *paths: str, agent: str = AGENT) -> int:
        return self.append(self.message(action, paths, (), None, agent))

    def add_for(self, targets: Sequence[str], *nodes: Node) -> int:
        """Append a package that is for named subscribers alone."""
        message = self.message(Action.ADD, [node.path for node in nodes], (), nodes)
        entry = replace(message.entry, targets=tuple(targets))
        return self.append(replace(message, entry=entry, package_type=type_of(entry)))

    def bad(self, path: str = "/bad", agent: str = AGENT) -> int:
        """Append a package that no repository can hold."""
        return self.add(bad_page(path), agent=agent)

    def message(
        self,
        action: Action,
        paths: Sequence[str],
        deep: Sequence[str],
        nodes: Iterable[Node] | None,
        agent: str = AGENT,
    ) -> PackageMessage:
        package_id = f"dstrpck-{next(_numbers)}-{uuid.uuid4()}"
        body = None if nodes is None else pack(nodes, package_id, self.blobs)
        self.sequence += 1
        entry = PackageEntry(
            package_id,
            agent,
            action,
            tuple(paths),
            tuple(deep),
            "tester",
            self.producer,
            1 if self.producer else 0,
            self.sequence if self.producer else 0,
            body.length if body else 0,
            body.node_count if body else 0,
        )
        return PackageMessage(entry, body.body if body else None)

    def renumbered(self, message: PackageMessage) -> PackageMessage:
        """Return the same package under the next number of our producer."""
        self.sequence += 1
        return replace(message, entry=replace(message.entry, sequence=self.sequence))

    def append(self, message: PackageMessage) -> int:
        encoded = encode_package(message)
        return self.raw(encoded.value, dict(encoded.headers))

    def raw(self, value: bytes, headers: dict[str, bytes]) -> int:
        record = Outgoing(value, headers)
        return self.journal.append(self.topics.package, record).result(120).offset

    def clear(self, subscriber: str, offset: int, command_id: str = "", agent: str = AGENT) -> str:
        return self.command(ClearCommand(command_id, subscriber, agent, offset))

    def control(self, subscriber: str, desired: DesiredState, agent: str = AGENT) -> str:
        return self.command(ControlCommand("", subscriber, agent, desired))

    def reset(self, subscriber: str, offset: int, agent: str = AGENT) -> str:
        return self.command(ResetCommand("", subscriber, agent, offset))

    def retry(self, subscriber: str, agent: str = AGENT, command_id: str = "") -> str:
        return self.command(RetryCommand(command_id, subscriber, agent))

    def command(self, command: Command) -> str:
        """Append a command for the present log, under a new id when it has none; return the id."""
        command = replace(
            command,
            command_id=command.command_id or uuid.uuid4().hex,
            user="operator",
            journal_id=command.journal_id or self.journal.identity(self.topics.package),
        )
        encoded = encode_command(command)
        record = Outgoing(encoded.value, encoded.headers, command.subscriber)
        self.journal.append(self.topics.command, record).result(120)
        return command.command_id

    def again(self, record: Record) -> None:
        """Append a record once more."""
        outgoing = Outgoing(record.value, record.headers, record.key)
        self.journal.append(record.topic, outgoing).result(120)

    def records(self) -> list[Record]:
        return everything(self.journal, self.topics.package)

    def statuses(self) -> list[StatusMessage]:
        return [decode_status(r.headers, r.value) for r in self._reported(StatusMessage)]

    def command_statuses(self) -> list[CommandStatusMessage]:
        records = self._reported(CommandStatusMessage)
        return [decode_command_status(r.headers, r.value) for r in records]

    def _reported(self, kind: type[Message]) -> list[Record]:
        reported = everything(self.journal, self.topics.status)
        return [record for record in reported if message_type(record.headers) == kind.__name__]

    def announcements(self) -> list[DiscoveryMessage]:
        records = everything(self.journal, self.topics.discovery)
        return [decode_discovery(record.headers, record.value) for record in records]
