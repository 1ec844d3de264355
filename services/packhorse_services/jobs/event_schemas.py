"""The documents of events."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from packhorse.jobs.events.reading import StoredEvent
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.fields import Properties, Topic


class EventRequest(StrictBody):
    """An event for every instance."""

    topic: Topic = Field(description="Those below packhorse/ are the product's own")
    properties: Properties = Field(default={}, description="At most 64 KiB as JSON")


class EventDocument(BaseModel):
    """Something that has happened."""

    number: int
    topic: str
    application: str = Field(description="The instance that it comes from")
    created_at: datetime
    properties: dict[str, Any]


class GapDocument(BaseModel):
    """Events behind the position that was sent were pruned; it goes on from now."""

    reason: Literal["PRUNED"] = "PRUNED"


def event_document(event: StoredEvent) -> EventDocument:
    """Return the document of an event."""
    return EventDocument(
        number=event.number,
        topic=event.topic,
        application=event.application,
        created_at=event.created_at,
        properties=event.properties,
    )
