"""Listing distributions."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from packhorse.runtime.auth import Principal, Scope, require
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import Action
from packhorse_services.publisher.collaborators import of
from packhorse_services.publisher.distribution_documents import distribution_summary
from packhorse_services.publisher.distribution_list import (
    DistributionFilter,
    DistributionPage,
    read_place,
    write_place,
)
from packhorse_services.publisher.distributions import DistributionState
from packhorse_services.publisher.schemas import DistributionSummary, Path

router = APIRouter(route_class=StrictRoute, tags=["distributions"])

Reader = Annotated[Principal, Depends(require(Scope.QUEUES_READ))]

_MAX_PAGE = 1_000


class DistributionListDocument(BaseModel):
    """Distributions of a publisher agent, newest first."""

    agent: str
    distributions: list[DistributionSummary] = Field(
        description="A page may be short, with a filter even empty, and yet not the last: it has "
        "bounded bytes, and costs a bounded amount of looking"
    )
    next: str | None = Field(description="URL of the next page, or null at the end")


@router.get("/distributions", responses=documented(503), response_model=DistributionListDocument)
async def list_distributions(
    request: Request,
    _caller: Reader,
    *,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    path_prefix: Annotated[
        Path | None,
        Query(max_length=2048, description="With a path that is this one or lies below it"),
    ] = None,
    action: Annotated[
        Literal["ADD", "DELETE", "INVALIDATE", "TEST"] | None, Query(description="Of this action")
    ] = None,
    user: Annotated[str | None, Query(max_length=200, description="Asked for by this one")] = None,
    state: Annotated[
        Literal["ACCEPTED", "QUEUED", "DISTRIBUTED"] | None, Query(description="In this state now")
    ] = None,
) -> Response:
    """List what was distributed, newest first, as long as the log keeps it."""
    publisher = of(request)
    wanted = DistributionFilter(
        path_prefix, action and Action(action), user, state and DistributionState(state)
    )
    page = await publisher.distribution_list.page(wanted, limit, read_place(cursor))
    following = None
    if page.behind is not None:
        asked = {"path_prefix": path_prefix, "action": action, "user": user, "state": state}
        place = write_place(page.behind)
        following = page_url("/distributions", cursor=place, limit=limit, **asked)
    body = await asyncio.to_thread(_written, publisher.agent, page, following)
    return Response(body, headers=link_to(following), media_type="application/json")


def _written(agent: str, page: DistributionPage, following: str | None) -> str:
    return DistributionListDocument(
        agent=agent,
        distributions=[distribution_summary(found, in_state) for found, in_state in page.found],
        next=following,
    ).model_dump_json()
