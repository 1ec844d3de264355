"""What callers ask of the cleanup over HTTP; what they are shown is in `report`."""

from pydantic import BaseModel, Field

from packhorse.runtime.validation import StrictBody


class RunRequest(StrictBody):
    """What a caller asks for."""

    dry_run: bool = Field(default=False, description="Only report what would be removed")


class RequestedRun(BaseModel):
    """The run that was asked for."""

    id: int
