"""Nodes as HTTP bodies."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_BINARIES = 100
MAX_BINARY_BYTES = 2**53 - 1
"""The largest number that every JSON reader keeps exact."""

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]+$"
_MEDIA_TYPE = r"^[\x21-\x7e][\x20-\x7e]*$"

TypeName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]
BinaryName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]


class _Body(BaseModel):
    """A request body; what its JSON may hold is `packhorse.content.json_limits`' business."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BinaryReference(_Body):
    """A binary that has been put into the blob store."""

    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    length: Annotated[int, Field(ge=0, le=MAX_BINARY_BYTES)]
    media_type: Annotated[str, StringConstraints(max_length=255, pattern=_MEDIA_TYPE)] = (
        "application/octet-stream"
    )


def _by_name(schema: dict[str, Any]) -> None:
    """Say of a map's names and values what generators read: they know no `patternProperties`."""
    [(pattern, value)] = schema.pop("patternProperties").items()
    schema["propertyNames"]["pattern"] = pattern
    schema["additionalProperties"] = value


class NodeBody(_Body):
    """What a node is to become."""

    type: TypeName
    properties: dict[str, Any] = Field(default={}, description="Any JSON object")
    binaries: dict[BinaryName, BinaryReference] = Field(
        default={}, max_length=MAX_BINARIES, json_schema_extra=_by_name
    )


class NodePatch(_Body):
    """A merge patch (RFC 7396) of a node: null removes a member; what is left out stays."""

    type: TypeName | None = None
    properties: dict[str, Any] = Field(default={})
    binaries: dict[BinaryName, BinaryReference | None] = Field(
        default={}, max_length=MAX_BINARIES, json_schema_extra=_by_name
    )


class NodeDocument(BaseModel):
    """A node as it is."""

    model_config = ConfigDict(frozen=True)

    path: str
    type: str
    properties: dict[str, Any]
    binaries: dict[str, BinaryReference]
