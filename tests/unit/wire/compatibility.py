"""What may not change about the wire once it is released, as a comparison of two descriptions.

`python -m tests.unit.wire.compatibility` writes the present description to proto/released.json;
do it when a release is made.
"""

import json
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from packhorse.wire.v1 import command_pb2, discovery_pb2, package_pb2, status_pb2

RELEASED = Path(__file__).parents[3] / "proto" / "released.json"

Description = dict[str, Any]


def describe() -> Description:
    """Describe the messages and enums of this build: what numbers mean on the wire."""
    messages: Description = {}
    enums: Description = {}
    for module in (command_pb2, discovery_pb2, package_pb2, status_pb2):
        descriptor: FileDescriptor = module.DESCRIPTOR
        found = descriptor_pb2.FileDescriptorProto()
        descriptor.CopyToProto(found)
        for message in found.message_type:
            _describe_message(message, messages)
        for enum in found.enum_type:
            enums[enum.name] = {str(value.number): value.name for value in enum.value}
    return {"messages": messages, "enums": enums}


def _describe_message(
    message: descriptor_pb2.DescriptorProto, into: Description, prefix: str = ""
) -> None:
    name = prefix + message.name
    fields = {str(field.number): _describe_field(field, message) for field in message.field}
    reserved = [[span.start, span.end - 1] for span in message.reserved_range]
    into[name] = {"fields": fields, "reserved": reserved}
    for nested in message.nested_type:
        _describe_message(nested, into, name + ".")


def _describe_field(
    field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto
) -> dict[str, str]:
    kind = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)
    label = descriptor_pb2.FieldDescriptorProto.Label.Name(field.label)
    described = {
        "name": field.name,
        "type": field.type_name or kind.removeprefix("TYPE_").lower(),
        "label": label.removeprefix("LABEL_").lower(),
    }
    if field.HasField("oneof_index"):
        described["oneof"] = message.oneof_decl[field.oneof_index].name
    return described


def breaks(released: Description, present: Description) -> list[str]:
    """Return one sentence for each released promise that `present` breaks."""
    found: list[str] = []
    for name, message in released["messages"].items():
        now = present["messages"].get(name)
        found += [f"message {name} is gone"] if now is None else _message_breaks(name, message, now)
    for name, values in released["enums"].items():
        now = present["enums"].get(name, {})
        found += [
            f"{name}: {value} was {number} and is not any more"
            for number, value in values.items()
            if now.get(number) != value
        ]
    return found


def _message_breaks(name: str, released: Description, present: Description) -> list[str]:
    found = []
    for number, field in released["fields"].items():
        now = present["fields"].get(number)
        if now is None:
            if not _is_reserved(int(number), present):
                found.append(f"{name}.{field['name']} is gone and {number} is not reserved")
        elif now != field:
            found.append(f"{name}: {number} was {field} and is {now}")
    for first, last in released["reserved"]:
        for number in range(first, last + 1):
            if not _is_reserved(number, present):
                found.append(f"{name}: {number} is not reserved any more")
    return found


def _is_reserved(number: int, message: Description) -> bool:
    return any(first <= number <= last for first, last in message["reserved"])


if __name__ == "__main__":
    RELEASED.write_text(json.dumps(describe(), indent=1, sort_keys=True) + "\n")
