"""Many requests in one call, with an outcome for each."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, Field, ValidationError, WrapValidator, model_validator

from packhorse.runtime import audit
from packhorse.runtime.auth import Principal
from packhorse.runtime.http import add_routes
from packhorse.runtime.idempotency_key import KEY_PATTERN, MAX_KEY
from packhorse.runtime.places import Places, who
from packhorse.runtime.problems import (
    Problem,
    ProblemDocument,
    Table,
    document_of,
    documented,
    problem_from,
)
from packhorse.runtime.validation import StrictRoute, check_amount, problem_of_errors
from packhorse_services.publisher.distributions.schemas import DistributionAccepted, PublishBody
from packhorse_services.publisher.http.collaborators import Collaborators, of
from packhorse_services.publisher.http.distribution_routes import (
    PathAtFault,
    problem_of_path,
    requested_of,
)
from packhorse_services.publisher.http.fields import Distributor
from packhorse_services.publisher.http.submission import (
    accepted_documents,
    count,
    ended,
)
from packhorse_services.publisher.outbox.producers import EarlierRefused
from packhorse_services.publisher.outbox.request import Accepted, Pending

_router = APIRouter(route_class=StrictRoute, tags=["distributions"])

logger = logging.getLogger(__name__)

MAX_BATCH = 500
_MOST = 2 * MAX_BATCH
"""Requests of batches under way; one caller may have half of them. Those who send one at a time
share the line with them, and have the rest of it (R33)."""


class BatchedRequest(PublishBody):
    """One request of a batch."""

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_KEY,
        pattern=KEY_PATTERN,
        description="In the place of the header of a request that is sent alone",
    )


@dataclass(frozen=True, slots=True)
class _Invalid:
    """What was sent in the place of a request."""

    problem: Problem


def _each_by_itself(value: Any, validate: Callable[[Any], BatchedRequest]) -> Any:
    try:
        return validate(value)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        return _Invalid(problem_of_errors(found))


class BatchBody(BaseModel):
    """Requests; those of one producer in the order of their sequences."""

    requests: list[Annotated[BatchedRequest, WrapValidator(_each_by_itself)]] = Field(
        min_length=1, max_length=MAX_BATCH
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_early(cls, value: Any) -> Any:
        check_amount(value)
        return value


class BatchOutcome(BaseModel):
    """What became of one request: one of the two is null."""

    status: int = Field(description="What the request would have been answered with alone")
    accepted: DistributionAccepted | None = None
    problem: ProblemDocument | None = None
    retry_after: int | None = Field(
        default=None, description="Seconds; null for nothing to wait for"
    )


class BatchOutcomes(BaseModel):
    """The outcomes, in the order of the requests."""

    outcomes: list[BatchOutcome]


class _Batch:
    """The requests of one call, taken in order."""

    def __init__(self, publisher: Collaborators, caller: Principal) -> None:
        self._publisher, self._caller = publisher, caller
        self._last: dict[str, Pending | Exception] = {}
        """What became of each producer's last request."""
        self._unreadable: Exception | None = None

    async def take(self, one: BatchedRequest | _Invalid) -> Accepted | Pending | Exception:
        """Return a request that is on its way, or what is certain already."""
        if isinstance(one, _Invalid):
            self._unreadable = one.problem  # nobody knows whose it was
            return one.problem
        name = one.producer.name if one.producer else ""
        before = (self._unreadable or self._last.get(name)) if name else None
        taken = await self._take(one, before)
        if name and not isinstance(taken, Accepted):
            self._last[name] = taken
        return taken

    async def _take(
        self, one: BatchedRequest, before: Pending | Exception | None
    ) -> Accepted | Pending | Exception:
        if isinstance(before, Exception):
            return EarlierRefused("an earlier request of this producer was refused; send it again")
        try:
            requested = requested_of(self._publisher, one, self._caller, one.idempotency_key)
            known = await self._publisher.admission.known(requested)
            return known or self._publisher.intake.submit(requested, behind=before)
        except Exception as error:
            return error


def mount(app: FastAPI) -> None:
    """Add the route."""
    app.state.batched = Places("requests of batches under way", _MOST, MAX_BATCH)
    add_routes(app, _router)


@_router.post("/distribute/batch", responses=documented(400, 413, 415, 429, 503))
async def distribute_batch(request: Request, body: BatchBody, caller: Distributor) -> BatchOutcomes:
    """Take up to 500 requests in one call, and return the result of each.

    Each is published or refused, and safely sent again, as if it had been sent alone. Requests of
    one producer go out in order: those behind one that was refused are not published
    (`earlier-refused`); send them again.
    """
    publisher = of(request)
    with request.app.state.batched.taken(who(request.scope), len(body.requests)):
        batch = _Batch(publisher, caller)
        taken = [await batch.take(one) for one in body.requests]
        ends = await asyncio.gather(*(_end(publisher, one) for one in taken))
    documents = iter(
        await accepted_documents(publisher, [end for end in ends if isinstance(end, Accepted)])
    )
    outcomes = []
    for one, end in zip(body.requests, ends, strict=True):
        count(publisher, end)
        if isinstance(end, Accepted):
            outcomes.append(BatchOutcome(status=202, accepted=next(documents)))
        else:
            outcomes.append(_refused(_with_path(one, end), request.app.state.problems))
    accepted = sum(one.accepted is not None for one in outcomes)
    targets = {
        name for one in body.requests if isinstance(one, BatchedRequest) for name in one.targets
    }
    audit.note(
        request, requests=len(outcomes), accepted=accepted, targets=", ".join(sorted(targets))
    )
    return BatchOutcomes(outcomes=outcomes)


async def _end(
    publisher: Collaborators, taken: Accepted | Pending | Exception
) -> Accepted | Exception:
    if not isinstance(taken, Pending):
        return taken
    try:
        return await ended(publisher, taken)
    except Exception as error:
        return error


def _with_path(one: BatchedRequest | _Invalid, error: Exception) -> Exception:
    if isinstance(error, PathAtFault) and isinstance(one, BatchedRequest):
        return problem_of_path(one, error)
    return error


def _refused(error: Exception, table: Table) -> BatchOutcome:
    problem = problem_from(error, table)
    if problem.kind.status == 500:
        logger.error("a request of a batch failed", exc_info=error)
    return BatchOutcome(
        status=problem.kind.status,
        problem=ProblemDocument.model_validate(document_of(problem)),
        retry_after=problem.kind.retry_after_s,
    )
