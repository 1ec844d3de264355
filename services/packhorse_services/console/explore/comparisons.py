"""A comparison as one request of a program: what differs at a subscriber, page by page."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from packhorse.client.errors import ClientError, Misused, NoAnswer, Refused
from packhorse.client.exchange import Document
from packhorse.content.requests import ReadablePath
from packhorse.runtime.auth import Principal, TokenScope, bearer, require
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.places import who
from packhorse.runtime.problems import GENERIC, REFUSED, Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.frame.visit import Visit
from packhorse_services.console.parts import of

router = APIRouter(route_class=StrictRoute, tags=["compare"])

_PATIENCE_S = 30.0

_Name = Annotated[str, Query(max_length=200)]
_Caller = Annotated[Principal, Depends(require(TokenScope.CONTENT_READ))]


@dataclass(frozen=True)
class ComparisonQuery:
    """Who is compared, and from where on."""

    subscriber: Annotated[str, Query(max_length=200, description="The one that is compared")]
    other: Annotated[_Name, Query(description="With this subscriber; empty: with the author")] = ""
    agent: Annotated[_Name, Query(description="Whose queue is looked at; empty: your first")] = ""
    after: Annotated[str | None, Query(max_length=2_100, description="From `next`")] = None
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000


class Difference(BaseModel):
    """A node that is not the same."""

    path: str = Field(description="The author's path")
    own_path: str | None = Field(default=None, description="The subscriber's, where it is another")
    kind: Literal["missing", "extra", "different"] = Field(description="What it is there")


class ComparisonPage(BaseModel):
    """What differs at and below a path: up to `limit` nodes, in order."""

    differences: list[Difference]
    nodes: int = Field(description="How many were compared with")
    under_way: int = Field(
        description="How many more may differ: packages or changes are under way"
    )
    packages: int | None = Field(description="In the subscriber's queue; null: not known")
    state: str = Field(description="The queue's")
    next: str | None = Field(description="URL of the next page, or null at the end")


@router.get("/compare/{path:path}", responses=documented(404, 429, 503))
async def compare(
    request: Request,
    response: Response,
    path: ReadablePath,
    wanted: Annotated[ComparisonQuery, Depends()],
    caller: _Caller,
) -> ComparisonPage:
    """Compare a subtree at a subscriber with the author, or with another subscriber.

    The services are asked with your own token. A caller has one comparison at a time; one that
    takes longer than 30 s is given up, and wants a smaller subtree.
    """
    with of(request).comparisons.taken(who(request.scope)):
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await _compared(request, path, wanted, caller)
        except TimeoutError:
            said = f"the comparison takes longer than {_PATIENCE_S:.0f} s; name a smaller subtree"
            raise Problem(422, REFUSED.title, said, slug=REFUSED.slug) from None
        except ClientError as error:
            raise _problem_of(error) from error
    place = {**asdict(wanted), "after": found["next"]}
    following = page_url(f"/compare{quote(path)}", **place) if found["next"] else None
    response.headers.update(link_to(following))
    return ComparisonPage(**{**found, "next": following})


async def _compared(
    request: Request, path: str, wanted: ComparisonQuery, caller: Principal
) -> Document:
    """Return a page of differences. Raises `ClientError`, and `Problem` 404 for an unknown name."""
    parts = of(request)
    urls = parts.contents.urls
    for name in (wanted.subscriber, wanted.other):
        if name not in urls:
            raise Problem(404, detail=f"the console was not told where {name or 'the author'} is")
    agent = Visit(request, caller).agent(wanted.agent)
    client = parts.compared.client(agent, bearer(request) or None)
    sides = client.reaching({"content": urls[wanted.other], "subscriber": urls[wanted.subscriber]})
    return await sides.compare(
        path,
        wanted.subscriber,
        other=wanted.other or None,
        after=wanted.after,
        limit=wanted.limit,
    )


def _problem_of(error: ClientError) -> Problem:
    """Return what a service has answered, as our own answer; 503 for what only a proxy says."""
    if not isinstance(error, Refused):
        status = 503 if isinstance(error, NoAnswer) else 422 if isinstance(error, Misused) else 409
        return Problem(status, detail=str(error))
    wait_s = error.retry_after_s
    headers = {} if wait_s is None else {"Retry-After": f"{wait_s:.0f}"}
    return Problem(
        error.status if error.status in GENERIC else 503, "", str(error), headers=headers
    )
