"""Registering a replayable source, and asking how far it has come."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from packhorse.messaging.deduplication import NOTHING
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.publisher.distributions.schemas import MAX_SEQUENCE, PRODUCER_NAME
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Distributor
from packhorse_services.publisher.outbox.producer_registry import Producer

router = APIRouter(route_class=StrictRoute, tags=["producers"])

Name = Annotated[str, Path(pattern=PRODUCER_NAME)]


class ProducerRegistered(BaseModel):
    """What a replayable source goes on with."""

    name: str
    epoch: int = Field(description="To be sent with each request; older ones are refused now")
    last_sequence: int | None = Field(
        description="The highest that is committed: go on behind it; null before the first"
    )

    @classmethod
    def of(cls, producer: Producer) -> Self:
        """Return the document of `producer`."""
        return cls(
            name=producer.name,
            epoch=producer.epoch,
            last_sequence=_sequence(producer.last_sequence),
        )


class ProducerDocument(BaseModel):
    """A replayable source of the caller."""

    name: str
    epoch: int
    last_sequence: int | None = Field(description="The highest that is committed")
    last_persisted_sequence: int | None = Field(
        description="The highest up to which all that is committed is in the journal"
    )
    registered_at: datetime
    used_at: datetime = Field(description="It expires when it is unused for long")

    @classmethod
    def of(cls, producer: Producer) -> Self:
        """Return the document of `producer`."""
        return cls(
            name=producer.name,
            epoch=producer.epoch,
            last_sequence=_sequence(producer.last_sequence),
            last_persisted_sequence=_sequence(producer.last_persisted),
            registered_at=producer.registered_at,
            used_at=producer.used_at,
        )


class ProducerPassed(StrictBody):
    """Up to where a source is done with its requests, those included that were refused."""

    epoch: int = Field(ge=1, le=MAX_SEQUENCE, description="What registering the producer gave")
    last_sequence: int = Field(
        ge=0, le=MAX_SEQUENCE, description="Nothing up to it is published from now on"
    )


def _sequence(number: int) -> int | None:
    return None if number == NOTHING else number


@router.put("/producers/{name}", responses=documented(422, 429, 503))
async def register_producer(
    request: Request, name: Name, caller: Distributor
) -> ProducerRegistered:
    """Register a replayable source; an earlier registration of the name is fenced."""
    producer = await of(request).producers.register(caller.name, name)
    return ProducerRegistered.of(producer)


@router.patch("/producers/{name}", responses=documented(400, 404, 409, 413, 415, 503))
async def pass_over(
    request: Request, name: Name, caller: Distributor, body: ProducerPassed
) -> ProducerDocument:
    """Pass over requests that were refused: as if those up to a sequence had been published.

    A sequence that is not above the last one changes nothing.
    """
    registry = of(request).producers
    passed = await registry.pass_over(caller.name, name, body.epoch, body.last_sequence)
    return ProducerDocument.of(passed)


@router.get("/producers/{name}", responses=documented(404, 503))
async def get_producer(request: Request, name: Name, caller: Distributor) -> ProducerDocument:
    """Return how far a replayable source of the caller's own has come."""
    return ProducerDocument.of(await of(request).producers.find(caller.name, name))
