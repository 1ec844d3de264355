"""Content watches over HTTP: whose changes become events, and jobs."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from psycopg import Connection
from pydantic import AfterValidator, BaseModel, Field

from packhorse.content.node import check_path
from packhorse.content.schemas import TypeName
from packhorse.jobs.content_changes.watches import (
    MOST_ROOTS,
    MOST_TYPES,
    ContentWatch,
    add_watch,
    list_watches,
    remove_watch,
)
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.jobs.http.fields import Admin, Document, Reader, Topic, WatchName, checked
from packhorse_services.jobs.http.parts import of

router = APIRouter(route_class=StrictRoute, tags=["events"])

Root = Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(checked(check_path))]


class WatchBody(StrictBody):
    """What is watched, and what a change becomes beside an event."""

    roots: list[Root] = Field(
        min_length=1,
        max_length=MOST_ROOTS,
        description="The nodes at and below these paths are watched",
    )
    job_topic: Topic | None = Field(
        None, description="Each change becomes a job of this topic too, in the same transaction"
    )
    types: list[TypeName] = Field(
        [],
        max_length=MOST_TYPES,
        description="Only nodes of these types, and subtrees with such a node; such a watch has "
        "events of its own, with its name as `watch`. What is removed is for all",
    )


class WatchDocument(Document):
    """A content watch."""

    name: str
    roots: list[str]
    job_topic: str | None
    types: list[str]


class WatchList(BaseModel):
    """All content watches, by name."""

    watches: list[WatchDocument]


@router.get("/content-watches", responses=documented(503))
async def list_content_watches(request: Request, _caller: Reader) -> WatchList:
    """List who watches content: without a watch no events of content are recorded."""
    found = await of(request).ask(list_watches)
    return WatchList(watches=[WatchDocument.model_validate(one) for one in found])


@router.put(
    "/content-watches/{name}",
    responses={
        201: {"model": WatchDocument, "description": "It was made"},
        **documented(400, 413, 415, 503),
    },
)
async def put_content_watch(
    request: Request, response: Response, name: WatchName, _caller: Admin, body: WatchBody
) -> WatchDocument:
    """Watch content, or change a watch; it covers what begins after the answer.

    Changes are events of the topics `packhorse/content/added`, `changed`, `removed` and
    `invalidated`.
    """
    watch = ContentWatch(name, body.roots, body.job_topic, body.types)

    if await of(request).ask(lambda connection: add_watch(connection, watch)):
        response.status_code = 201
    return WatchDocument.model_validate(watch)


@router.delete("/content-watches/{name}", status_code=204, responses=documented(404, 503))
async def remove_content_watch(request: Request, name: WatchName, _caller: Admin) -> Response:
    """Remove a watch; events and jobs that it has had stay."""

    def remove(connection: Connection) -> None:
        if not remove_watch(connection, name):
            raise Problem(404, detail=f"there is no content watch {name!r}")

    await of(request).ask(remove)
    return Response(status_code=204)
