"""The form of an announcement on the wire, version 1; nothing else is taken (R30)."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from packhorse.errors import Permanent
from packhorse.runtime.reasons import reason_of
from packhorse.topology.properties import (
    LARGEST_TOTAL,
    MOST_PROPERTIES,
    InvalidProperty,
    check_property,
)

MAX_CLUSTERS = 256
MAX_INSTANCES = 1_000
"""Of all clusters of an announcement together."""

MAX_PATH = 32
"""Clusters that news may have passed through."""

MAX_BACKOFF_S = 600.0


class InvalidAnnouncement(Permanent):
    """A peer says what no honest peer says, or more than is taken; the text says what."""


def _valid_properties(properties: dict[str, str]) -> dict[str, str]:
    total = 0
    for name, value in properties.items():
        try:
            check_property(name, value)
        except InvalidProperty as error:
            raise ValueError(str(error)) from None
        total += len(name) + len(value.encode())
    if total > LARGEST_TOTAL:
        raise ValueError(f"the properties of an instance have more than {LARGEST_TOTAL} bytes")
    return properties


Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Of an instance or of a cluster."""

Properties = Annotated[
    dict[str, str], Field(max_length=MOST_PROPERTIES), AfterValidator(_valid_properties)
]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class WireInstance(_Form):
    """One instance, in its cluster's order."""

    id: Id
    leader: bool
    properties: Properties


class WireCluster(_Form):
    """The sender's own cluster."""

    id: Id
    instances: Annotated[list[WireInstance], Field(min_length=1, max_length=MAX_INSTANCES)]


class WireRoute(WireCluster):
    """A cluster that the sender has heard of."""

    path: Annotated[list[Id], Field(min_length=2, max_length=MAX_PATH)]


class WireAnnouncement(_Form):
    """All of it."""

    protocol_version: Literal[1]
    owner: Id
    local_cluster: WireCluster
    clusters: Annotated[list[WireRoute], Field(max_length=MAX_CLUSTERS - 1)]
    created_ms: int = Field(default=0, ge=0, lt=2**53)
    server_info: str = Field(default="", max_length=200)
    loop: bool = False
    backoff_interval_s: float = Field(default=0.0, ge=0, le=MAX_BACKOFF_S)
    reset_backoff: bool = False


WireT = TypeVar("WireT", bound=_Form)


def checked(form: type[WireT], value: Any) -> WireT:
    """Return the value in its form. Raises `InvalidAnnouncement` naming the first fault."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        where = ".".join(str(step)[:200] for step in first["loc"])
        reason = reason_of(first["msg"])
        raise InvalidAnnouncement(f"{where or 'the announcement'}: {reason[:300]}") from None
