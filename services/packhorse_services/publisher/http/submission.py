"""From a request over HTTP to its package, and the answer: for all routes that distribute."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import psycopg
from fastapi import Header, Request, Response
from psycopg_pool import PoolTimeout
from starlette.requests import ClientDisconnect

from packhorse.runtime.metrics import PUBLISHER_REQUESTS
from packhorse.runtime.waiting import TooManyWaits, waited
from packhorse_services.publisher.distributions.schemas import DistributionAccepted, Links
from packhorse_services.publisher.http.collaborators import Collaborators, of
from packhorse_services.publisher.outbox.request import Accepted, DistributionRequest, Pending
from packhorse_services.publisher.outcomes.distribution_state import DistributionState
from packhorse_services.publisher.publish.admission import QueueFull
from packhorse_services.publisher.publish.prepared import StalePackage
from packhorse_services.publisher.publish.publish_queue import TooManyWaiting
from packhorse_services.publisher.publish.request_intake import PublisherBusy

logger = logging.getLogger(__name__)

MAX_WAIT_S = 60
_ANSWER_S = 10.0
_STATE_S = 2.0

ACCEPTED_HEADERS: dict[str, Any] = {
    "Location": {"schema": {"type": "string"}},
    "Preference-Applied": {"schema": {"type": "string"}},
}
"""What a 202 of these routes comes with, for their OpenAPI."""

Prefer = Annotated[
    str | None,
    Header(
        max_length=1000,
        description="`wait=N`: answer once all live subscribers are done with it, "
        "at most N s later. With `wait=0` the answer comes at once, and a later "
        "`GET …?wait=N` as soon as the subscribers are done",
    ),
]


async def publish(publisher: Collaborators, requested: DistributionRequest) -> Accepted:
    """Return the package that a request has led to.

    Raises `QueueFull`, and what `RequestIntake.submit` says.
    """
    try:
        accepted = await publisher.admission.known(requested)
        accepted = accepted or await ended(publisher, publisher.intake.submit(requested))
    except Exception as error:
        count(publisher, error)
        raise
    count(publisher, accepted)
    return accepted


def count(publisher: Collaborators, outcome: Accepted | Exception) -> None:
    """Count what became of a request."""
    match outcome:
        case Accepted():
            state = "repeated" if outcome.repeated else "accepted"
        case QueueFull() | TooManyWaiting():
            state = "throttled"
        case StalePackage():
            state = "stale"
        case _:
            state = "refused"
    PUBLISHER_REQUESTS.labels(publisher.agent, state).inc()


async def ended(publisher: Collaborators, pending: Pending) -> Accepted:
    """Wait for the journal, but for a committed package not for long.

    Raises what the request was refused with, and `PublisherBusy`.
    """
    try:
        return await publisher.wakeups.result(pending.future, _ANSWER_S)
    except TimeoutError as error:
        if pending.committed:
            return Accepted(pending.package_id, None)
        if pending.future.cancel():
            raise PublisherBusy("the publisher is busy; send the request again") from error
        return await asyncio.wrap_future(pending.future)  # a large export is under way


async def answer(request: Request, accepted: Accepted, wait: int | None) -> Response:
    """Return the answer to a request, `wait` seconds later unless everybody has it before.

    What can't be waited for, because too many wait already, or the journal has no such package
    yet, is answered at once, without `Preference-Applied`.
    """
    publisher = of(request)
    headers = {"Location": _location(accepted)}
    if wait is not None and accepted.offset is not None:
        known = accepted.offset, accepted.targets
        with suppress(TooManyWaits, ClientDisconnect):
            await waited(request, partial(publisher.distributions.wait, *known, wait))
            headers["Preference-Applied"] = f"wait={wait}"
    [document] = await accepted_documents(publisher, [accepted])
    return Response(document.model_dump_json(), 202, headers, "application/json")


async def accepted_documents(
    publisher: Collaborators, accepted: Sequence[Accepted]
) -> list[DistributionAccepted]:
    """Return what accepted requests are answered with right now."""
    states = await _states(publisher, accepted)
    return [_document(one, state) for one, state in zip(accepted, states, strict=True)]


def _document(accepted: Accepted, state: DistributionState) -> DistributionAccepted:
    return DistributionAccepted(
        id=accepted.package_id,
        package_id=accepted.package_id,
        state=state.value,
        offset=accepted.offset,
        repeated=accepted.repeated,
        links=Links(self=_location(accepted)),
    )


def _location(accepted: Accepted) -> str:
    return f"/distributions/{accepted.package_id}"


async def _states(
    publisher: Collaborators, accepted: Sequence[Accepted]
) -> Sequence[DistributionState]:
    """Return the states; what is accepted is answered so, also when the database is away now."""
    packages = [(one.package_id, one.offset, one.targets) for one in accepted]
    try:
        async with asyncio.timeout(_STATE_S):
            return await publisher.distributions.states(packages)
    except (psycopg.Error, PoolTimeout, TimeoutError) as error:
        logger.warning("states of distributions can't be read", extra={"error": str(error)})
        return [DistributionState.QUEUED] * len(packages)


def wanted_wait(prefer: str | None) -> int | None:
    """Return the seconds that a caller prefers to wait (RFC 7240), at most 60."""
    for preference in (prefer or "").replace(";", ",").split(","):
        name, _, value = preference.partition("=")
        seconds = value.strip().strip('"')
        if name.strip() == "wait" and len(seconds) <= 5 and seconds.isascii() and seconds.isdigit():
            return min(int(seconds), MAX_WAIT_S)
    return None
