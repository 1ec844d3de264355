"""From a request over HTTP to its package, and the answer: for all routes that distribute."""

import asyncio
import re
from typing import Annotated, Any

from fastapi import Header, Response

from packhorse.runtime.metrics import PUBLISHER_REQUESTS
from packhorse_services.publisher.admission import QueueFull
from packhorse_services.publisher.collaborators import Collaborators
from packhorse_services.publisher.distribute import DistributionRequest
from packhorse_services.publisher.exporter import PublisherBusy
from packhorse_services.publisher.line import TooManyWaiting
from packhorse_services.publisher.pending import Accepted, Pending
from packhorse_services.publisher.prepared import StalePackage
from packhorse_services.publisher.schemas import DistributionAccepted, Links

MAX_WAIT_S = 60
_ANSWER_S = 10.0
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,5})\"?\s*(?:$|[,;])")

ACCEPTED_HEADERS: dict[str, Any] = {
    "Location": {"schema": {"type": "string"}},
    "Preference-Applied": {"schema": {"type": "string"}},
}
"""What a 202 of these routes comes with, for their OpenAPI."""

Prefer = Annotated[
    str | None,
    Header(description="`wait=N`: answer once all live subscribers have it, at most N s later"),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key within 24 h gives the same answer and no second package",
    ),
]


async def publish(publisher: Collaborators, asked: DistributionRequest) -> Accepted:
    """Return the package that a request has led to.

    Raises `QueueFull`, and what `Exporter.submit` tells.
    """
    try:
        accepted = await publisher.admission.known(asked)
        accepted = accepted or await _accepted(publisher.exporter.submit(asked))
    except (QueueFull, TooManyWaiting):
        PUBLISHER_REQUESTS.labels(publisher.agent, "throttled").inc()
        raise
    except StalePackage:
        PUBLISHER_REQUESTS.labels(publisher.agent, "stale").inc()
        raise
    except Exception:
        PUBLISHER_REQUESTS.labels(publisher.agent, "refused").inc()
        raise
    state = "repeated" if accepted.repeated else "accepted"
    PUBLISHER_REQUESTS.labels(publisher.agent, state).inc()
    return accepted


async def _accepted(pending: Pending) -> Accepted:
    """Wait for the journal, but for a committed package not for long."""
    answer = asyncio.wrap_future(pending.future)
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await asyncio.shield(answer)
    except TimeoutError as error:
        if pending.committed:
            return Accepted(pending.package_id, None)
        if pending.future.cancel():
            raise PublisherBusy("the publisher is busy; send the request again") from error
        return await answer  # a large export is under way


async def answer(publisher: Collaborators, accepted: Accepted, wait: int | None) -> Response:
    """Return the answer to a request, `wait` seconds later unless everybody has it before."""
    location = f"/distributions/{accepted.package_id}"
    headers = {"Location": location}
    state = publisher.distributions.state(accepted.offset)
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait}"
        if accepted.offset is not None:
            state = await publisher.distributions.wait(accepted.offset, wait)
    document = DistributionAccepted(
        id=accepted.package_id,
        package_id=accepted.package_id,
        state=state.value,
        offset=accepted.offset,
        repeated=accepted.repeated,
        links=Links(self=location),
    )
    return Response(document.model_dump_json(), 202, headers, "application/json")


def wanted_wait(prefer: str | None) -> int | None:
    """Return the seconds that a caller prefers to wait (RFC 7240), at most 60."""
    found = _WAIT.search(prefer or "")
    return min(int(found[1]), MAX_WAIT_S) if found else None
