"""Releases: what goes out later, what became of it, and letting it go at once or not at all."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import Invalid, NotFound
from packhorse.client.exchange import Document, given, with_query
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import curl, same
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import (
    PageVisit,
    Visit,
    acting,
    back_to,
    followed_page,
    page_router,
)

router = page_router()

_ROWS = 100
_Word = Annotated[str, Query(max_length=200)]

Act = Literal["send", "cancel"]
_ACTS: Mapping[str, Callable[[AsyncClient, str], Awaitable[Document]]] = {
    "send": AsyncClient.send_release,
    "cancel": AsyncClient.cancel_release,
}
_DONE = {"send": "It goes out now.", "cancel": "It does not go out."}


@dataclass(frozen=True)
class ReleaseFilter:
    """Which releases are shown; empty: all of the first agent."""

    agent: _Word = ""
    state: _Word = ""


Filter = Annotated[ReleaseFilter, Depends()]


@followed_page(router, "/releases")
async def show_releases(visit: PageVisit, requested: Filter, done: _Word = "") -> Response:
    """Show what goes out later, the next one first, and what became of it."""
    shown = await _shown(visit, requested)
    return visit.followed(
        "releases",
        **shown,
        requested=requested,
        agents=visit.agents,
        notice=_DONE.get(done, ""),
    )


@router.post("/releases/{action}")
async def change_release(
    action: Act,
    form: Form,
    visit: Annotated[Visit, Depends(acting(TokenScope.DISTRIBUTE))],
) -> Response:
    """Let a release go out at once, or not at all."""
    agent = form.get("agent", "")
    await _ACTS[action](visit.publisher(agent), form.get("release", ""))
    return back_to("releases", agent=agent, done=action)


async def _shown(visit: Visit, requested: ReleaseFilter) -> dict[str, Any]:
    agent = visit.agent(requested.agent)
    path = with_query("/releases", limit=_ROWS, **given(state=requested.state or None))
    url, wrong, rows = visit.publisher_url(agent), "", list[Document]()
    try:
        rows = (await visit.publisher(agent).get(path))["releases"]
    except (Invalid, NotFound) as error:
        wrong = str(error)
    words = [f"--state={requested.state.lower()}"] if requested.state else []
    lines = [
        same("This page", ["get", "releases", *words, "--server", url], curl(url + path)),
        same(
            "Cancel",
            ["release", "cancel", "--server", url, "NAME"],
            curl(f"{url}/releases/NAME", "DELETE"),
        ),
    ]
    return {"agent": agent, "rows": rows, "wrong": wrong, "same": lines, "most": _ROWS}
