"""Commands to subscribers and what became of them, to record headers and bytes, and back.

What comes from the journal is untrusted (R30): the decoders raise `Undecodable` and nothing else.
"""

from collections.abc import Mapping

from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    ResetCommand,
    RetryCommand,
)
from packhorse.wire.record import (
    Encoded,
    Undecodable,
    enum_name,
    expect,
    fields_of,
    made_of,
    message_type,
    parse,
    type_headers,
)
from packhorse.wire.v1 import command_pb2, status_pb2

_KINDS: dict[str, type[Command]] = {
    kind.__name__: kind for kind in (ClearCommand, ControlCommand, ResetCommand, RetryCommand)
}


def encode_command(command: Command) -> Encoded:
    """Encode a command; its record's key is the subscriber's name."""
    wire = command_pb2.CommandMessage(
        subscriber=command.subscriber,
        publisher_agent=command.publisher_agent,
        command_id=command.command_id,
        user=command.user,
        issued_ms=command.issued_ms,
        journal_id=command.journal_id,
    )
    if isinstance(command, ClearCommand):
        wire.clear.offset = command.offset
    elif isinstance(command, ResetCommand):
        wire.reset.offset = command.offset
    elif isinstance(command, ControlCommand):
        wire.control.desired = command_pb2.DesiredState.Value(command.desired.value)
    if wire.WhichOneof("command") is None:  # all fields of the command have their default
        getattr(wire, _field(command)).SetInParent()
    return Encoded(type_headers(type(command)), wire.SerializeToString())


def _field(command: Command) -> str:
    fields = {ClearCommand: "clear", ResetCommand: "reset", RetryCommand: "retry"}
    return fields.get(type(command), "control")


def decode_command(headers: Mapping[str, bytes], value: bytes) -> Command:
    """Decode a command record. Raises `Undecodable`."""
    kind = _KINDS.get(message_type(headers))
    if kind is None:
        known = ", ".join(_KINDS)
        raise Undecodable(f"record is of type {message_type(headers)!r}, not one of {known}")
    expect(headers, kind)
    wire = command_pb2.CommandMessage()
    parse(wire, value)
    common = (wire.command_id, wire.subscriber, wire.publisher_agent)
    more = (wire.user, wire.issued_ms, wire.journal_id)
    name = wire.WhichOneof("command")
    if kind is ClearCommand and name == "clear":
        return ClearCommand(*common, wire.clear.offset, *more)
    if kind is ResetCommand and name == "reset":
        return ResetCommand(*common, wire.reset.offset, *more)
    if kind is RetryCommand and name == "retry":
        return RetryCommand(*common, *more)
    if kind is ControlCommand and name == "control":
        desired = DesiredState(enum_name(command_pb2.DesiredState, wire.control.desired))
        return ControlCommand(*common, desired, *more)
    raise Undecodable("the record holds another command than its headers promise")


def encode_command_status(message: CommandStatusMessage) -> Encoded:
    """Encode what became of a command."""
    wire = status_pb2.CommandStatusMessage(**fields_of(message, state=message.state.value))
    return Encoded(type_headers(CommandStatusMessage), wire.SerializeToString())


def decode_command_status(headers: Mapping[str, bytes], value: bytes) -> CommandStatusMessage:
    """Decode the record of a command's status. Raises `Undecodable`."""
    expect(headers, CommandStatusMessage)
    wire = status_pb2.CommandStatusMessage()
    parse(wire, value)
    state = CommandState(enum_name(status_pb2.CommandState, wire.state))
    return made_of(CommandStatusMessage, wire, state=state)
