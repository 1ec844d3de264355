"""One record to one row of silver, with the codecs that the services use.

Pure functions: the row's columns are those of `schemas` without the place.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from packhorse.bookkeeping.positions import LEFT_OUT
from packhorse.wire.codec import decode_discovery, decode_distributed, decode_status
from packhorse.wire.command_codec import decode_command, decode_command_status
from packhorse.wire.messages import (
    ClearCommand,
    CommandStatusMessage,
    ControlCommand,
    RetryCommand,
    SubscriberState,
)
from packhorse.wire.package_codec import decode_package_row
from packhorse.wire.record import Undecodable, message_type
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.storage import tables

Row = dict[str, Any]
Headers = Mapping[str, bytes]


def decoded(topics: Topics, topic: str, headers: Headers, value: bytes) -> tuple[str, Row]:
    """Return the silver table that a record of `topic` belongs to, and its row.

    Raises `Undecodable`, and nothing else, for what is no message of that topic (R30).
    """
    decode = _decoders(topics).get(topic)
    if decode is None:
        raise Undecodable(f"topic {topic} is none of the five")
    return decode(headers, value)


@cache
def _decoders(topics: Topics) -> Mapping[str, Callable[[Headers, bytes], tuple[str, Row]]]:
    return {
        topics.package: _package,
        topics.status: _status,
        topics.discovery: _announcement,
        topics.command: _command,
        topics.event: _event,
    }


def _package(headers: Headers, value: bytes) -> tuple[str, Row]:
    return tables.PACKAGES, decode_package_row(headers, value)._asdict()


def _status(headers: Headers, value: bytes) -> tuple[str, Row]:
    """Statuses of commands share the topic with those of packages."""
    if message_type(headers) == CommandStatusMessage.__name__:
        return _command_status(headers, value)
    status = decode_status(headers, value)
    return tables.STATUSES, {
        "subscriber": status.subscriber,
        "publisher_agent": status.publisher_agent,
        "package_offset": status.offset,
        "status": LEFT_OUT if status.left_out else status.status.value,
        "package_id": status.package_id,
        "attempts": status.attempts,
        "reason": status.reason,
        "command_id": status.command_id,
        "decided_ms": status.decided_ms,
        "subscriber_instance": status.subscriber_instance,
        "package_journal_id": status.journal_id,
    }


def _command_status(headers: Headers, value: bytes) -> tuple[str, Row]:
    status = decode_command_status(headers, value)
    return tables.COMMAND_STATUSES, {
        "command_id": status.command_id,
        "subscriber": status.subscriber,
        "publisher_agent": status.publisher_agent,
        "state": status.state.value,
        "removed": status.removed,
        "reason": status.reason,
        "decided_ms": status.decided_ms,
    }


def _announcement(headers: Headers, value: bytes) -> tuple[str, Row]:
    message = decode_discovery(headers, value)
    return tables.ANNOUNCEMENTS, {
        "subscriber": message.subscriber,
        "subscriptions": [_subscription(state) for state in message.states],
        "editable": message.editable,
        "max_retries": message.max_retries,
        "endpoint": message.endpoint,
        "announced_ms": message.announced_ms,
        "subscriber_instance": message.subscriber_instance,
    }


def _subscription(state: SubscriberState) -> Row:
    return {
        "publisher_agent": state.publisher_agent,
        "offset": state.offset,
        "retries": state.retries,
        "state": state.state.value,
        "last_error": state.last_error,
        "next_attempt_ms": state.next_attempt_ms,
        "blocked_since_ms": state.blocked_since_ms,
        "journal_id": state.journal_id,
        "epoch": state.epoch,
        "settled_offset": state.settled_offset,
        "started_offset": state.started_offset,
    }


def _command(headers: Headers, value: bytes) -> tuple[str, Row]:
    command = decode_command(headers, value)
    if isinstance(command, ControlCommand):
        kind, up_to, desired = "CONTROL", None, command.desired.value
    elif isinstance(command, RetryCommand):
        kind, up_to, desired = "RETRY", None, None
    else:
        kind = "CLEAR" if isinstance(command, ClearCommand) else "RESET"
        up_to, desired = command.offset, None
    return tables.COMMANDS, {
        "command_id": command.command_id,
        "kind": kind,
        "subscriber": command.subscriber,
        "publisher_agent": command.publisher_agent,
        "up_to": up_to,
        "desired": desired,
        "user": command.user,
        "issued_ms": command.issued_ms,
        "package_journal_id": command.journal_id,
    }


def _event(headers: Headers, value: bytes) -> tuple[str, Row]:
    event = decode_distributed(headers, value)
    return tables.EVENTS, {
        "package_id": event.package_id,
        "publisher_agent": event.publisher_agent,
        "package_offset": event.offset,
        "paths": list(event.paths),
        "deep_paths": list(event.deep_paths),
        "action": event.action,
        "imported": list(event.imported),
        "removed": list(event.removed),
        "failed": list(event.failed),
        "skipped": list(event.skipped),
        "away": list(event.away),
    }
