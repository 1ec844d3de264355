"""One queue: what waits in it, why it does not move, and the commands to its subscriber."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import Invalid
from packhorse.client.exchange import Document, given, segment, with_query
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.states import Look, look_of
from packhorse_services.console.frame.visit import (
    PageVisit,
    Visit,
    acting,
    back_to,
    followed_page,
    page_router,
)
from packhorse_services.console.upstream import cursor_of

router = page_router()

_ROWS = 100
_Name = Annotated[str, Query(min_length=1, max_length=200)]
_Text = Annotated[str, Query(max_length=2_048)]
_Done = Annotated[str, Query(max_length=20)]

Act = Literal["retry", "pause", "resume", "stop"]
_ACTS: Mapping[str, Callable[[AsyncClient, str], Awaitable[Document]]] = {
    "retry": AsyncClient.retry,
    "pause": AsyncClient.pause,
    "resume": AsyncClient.resume,
    "stop": AsyncClient.stop,
}
_DONE = {
    "retry": "It is asked to try the first package again at once.",
    "pause": "It is asked to pause; what it has begun it ends.",
    "resume": "It is asked to go on.",
    "stop": "It is asked to stop; it imports nothing until it is resumed.",
    "clear": "It is asked to remove the packages.",
}


@dataclass(frozen=True)
class QueueFilter(PageAddress):
    """Which queue, and what of it; they are in the page's address."""

    page = "queue"

    agent: _Name
    subscriber: _Name
    path: _Text = ""
    action: Annotated[str, Query(max_length=20)] = ""
    cursor: Annotated[str, Query(max_length=500)] = ""


Filter = Annotated[QueueFilter, Depends()]


@dataclass(frozen=True, slots=True)
class QueueShown:
    """A queue with a page of its packages; `wrong` is what the publisher says of the filter."""

    queue: Document | None
    look: Look
    following: str
    same: Sequence[Same]
    wrong: str = ""


@followed_page(router, "/queue")
async def show_queue(visit: PageVisit, requested: Filter, done: _Done = "") -> Response:
    """Show a queue, its head first."""
    shown = await _shown(visit, requested)
    notice = _DONE.get(done, "")
    return visit.followed("queue", shown=shown, requested=requested, notice=notice)


@router.post("/queue/{action}")
async def command_subscriber(
    action: Act,
    form: Form,
    visit: Annotated[Visit, Depends(acting(TokenScope.SUBSCRIBERS_OPERATE))],
) -> Response:
    """Send the subscriber a command, in the name of the visitor."""
    agent, subscriber = form.get("agent", ""), form.get("subscriber", "")
    command = await _ACTS[action](visit.publisher(agent), subscriber)
    audit.note(visit.request, command=command["command_id"])
    page = "subscriber" if form.get("back") == "subscriber" else "queue"
    return back_to(page, agent=agent, subscriber=subscriber, done=action)


async def _shown(visit: Visit, requested: QueueFilter) -> QueueShown:
    client = visit.publisher(requested.agent)
    try:
        queue = await client.get(_path(requested))
    except Invalid as error:
        first = replace(requested, path="", action="", cursor="")
        queue = {**await client.get(_path(first)), "entries": [], "next": None}
        return QueueShown(Document(queue), look_of(queue["state"]), "", [], str(error))
    return QueueShown(
        queue,
        look_of(queue["state"]),
        requested.url(cursor=cursor_of(queue["next"])) if queue["next"] else "",
        _same(visit, requested),
    )


def _path(requested: QueueFilter) -> str:
    filters = given(
        path_prefix=requested.path or None,
        action=requested.action or None,
        cursor=requested.cursor or None,
    )
    return with_query(f"/queues/{segment(requested.subscriber)}", limit=_ROWS, **filters)


def _same(visit: Visit, requested: QueueFilter) -> list[Same]:
    url, name = visit.publisher_url(requested.agent), requested.subscriber
    filters = [f"--path-prefix={requested.path}"] if requested.path else []
    filters += [f"--action={requested.action}"] if requested.action else []
    root, of_subscriber = f"{url}{_path(requested)}", f"{url}/subscribers/{segment(name)}"
    server = ["--server", url]
    return [
        same("This page", ["get", "queue", *filters, *server, "--", name], curl(root)),
        same(
            "Retry",
            ["retry", "subscriber", *server, "--", name],
            curl(f"{of_subscriber}/retry", "POST", "{}"),
        ),
        *(
            same(
                verb.capitalize(),
                [verb, "subscriber", *server, "--", name],
                curl(f"{of_subscriber}/{verb}", "PUT"),
            )
            for verb in ("pause", "resume", "stop")
        ),
    ]
