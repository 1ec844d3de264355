"""What operators did: each command, who gave it, and what became of it."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from packhorse.client.errors import Invalid, NotFound
from packhorse.client.exchange import Document, given, with_query
from packhorse_services.console.frame.equivalents import curl, same
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router

router = page_router()

_ROWS = 100
_Word = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class CommandFilter:
    """Which commands are shown; empty: all of the first agent."""

    agent: _Word = ""
    subscriber: _Word = ""
    state: _Word = ""


Filter = Annotated[CommandFilter, Depends()]


@followed_page(router, "/commands")
async def show_commands(visit: PageVisit, requested: Filter) -> Response:
    """Show what operators did in the last 30 days, newest first."""
    shown = await _shown(visit, requested)
    return visit.followed("commands", **shown, requested=requested, agents=visit.agents)


async def _shown(visit: Visit, requested: CommandFilter) -> dict[str, Any]:
    agent = visit.agent(requested.agent)
    filters = given(subscriber=requested.subscriber or None, state=requested.state or None)
    path = with_query("/commands", limit=_ROWS, **filters)
    url, wrong, rows = visit.publisher_url(agent), "", list[Document]()
    try:
        rows = (await visit.publisher(agent).get(path))["commands"]
    except (Invalid, NotFound) as error:
        wrong = str(error)
    words = [f"--subscriber={requested.subscriber}"] if requested.subscriber else []
    lines = same("This page", ["get", "commands", *words, "--server", url], curl(url + path))
    return {"agent": agent, "rows": rows, "wrong": wrong, "same": [lines], "most": _ROWS}
