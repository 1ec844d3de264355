"""Commands as HTTP takes and shows them."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from packhorse.runtime.validation import StrictBody
from packhorse_services.publisher.commands.clearing import Bound
from packhorse_services.publisher.commands.command_rows import StoredCommand

_BIG = 2**63 - 1

State = Literal["ISSUED", "SENT", "SEEN", "APPLIED", "REJECTED"]


class ClearBody(StrictBody):
    """How much to clear."""

    up_to_offset: int | None = Field(
        default=None, ge=-1, le=_BIG, description="Default: the newest in the queue"
    )


class ClearBound(BaseModel):
    """What a clear removes."""

    agent: str = Field(description="Only what this publisher agent sent is removed")
    subscriber: str
    up_to_offset: int
    packages: int = Field(
        description="How many waited up to there when it was counted; at least so many where "
        "packages_at_most is more: the queue is older than what is in memory"
    )
    packages_at_most: int


class ClearAccepted(ClearBound):
    """A clear command that is on its way."""

    command_id: str


class OffsetBody(StrictBody):
    """Where a stopped subscriber is to go on."""

    offset: int = Field(ge=-1, le=_BIG, description="The package behind it is imported next")


class CommandDocument(BaseModel):
    """A command, and what became of it."""

    command_id: str
    agent: str
    subscriber: str
    kind: Literal["CLEAR", "PAUSE", "RESUME", "STOP", "RESET", "RETRY"]
    offset: int | None = Field(
        validation_alias="log_offset",
        description="Of CLEAR: the last removed; of RESET: the new one",
    )
    issued_by: str
    state: State = Field(
        description="ISSUED, then SENT to the journal, SEEN by the subscriber, APPLIED or REJECTED"
    )
    issued_at: datetime
    sent_at: datetime | None
    seen_at: datetime | None
    ended_at: datetime | None
    removed: int | None = Field(description="Packages that a CLEAR has removed, once it has ended")
    reason: str = Field(description="Why it was rejected")


class CommandList(BaseModel):
    """What operators did, newest first."""

    agent: str
    commands: list[CommandDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


def command_document(command: StoredCommand) -> CommandDocument:
    """Show a command."""
    return CommandDocument.model_validate(command, from_attributes=True)


def clear_bound(agent: str, subscriber: str, bound: Bound) -> ClearBound:
    """Show what a clear would remove."""
    return ClearBound(
        agent=agent,
        subscriber=subscriber,
        up_to_offset=bound.offset,
        packages=bound.packages.at_least,
        packages_at_most=bound.packages.at_most,
    )


def clear_accepted(command: StoredCommand, bound: Bound) -> ClearAccepted:
    """Show a clear that is on its way."""
    shown = clear_bound(command.agent, command.subscriber, bound)
    return ClearAccepted(**shown.__dict__, command_id=command.command_id)
