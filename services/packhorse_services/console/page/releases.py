"""Releases: what goes out later, what became of it, and letting it go at once or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import Invalid, NotFound
from packhorse.client.exchange import Document, given, segment, with_query
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress
from packhorse_services.console.frame.session import Form
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
_OPEN = ("SCHEDULED", "FAILED", "DRAFT")
_Word = Annotated[str, Query(max_length=200)]

Act = Literal["send", "cancel"]
_ACTS: Mapping[str, Callable[[AsyncClient, str], Awaitable[Document]]] = {
    "send": AsyncClient.send_release,
    "cancel": AsyncClient.cancel_release,
}


@dataclass(frozen=True)
class ReleaseFilter(PageAddress):
    """Which releases are shown; empty: all of the first agent."""

    page = "releases"

    agent: _Word = ""
    state: _Word = ""
    cursor: _Word = ""


Filter = Annotated[ReleaseFilter, Depends()]


@dataclass(frozen=True, slots=True)
class Found:
    """Releases in their order; `left_out`: so many more are over that they are shown by state."""

    rows: Sequence[Document] = ()
    following: str = ""
    left_out: bool = False
    wrong: str = ""


@followed_page(router, "/releases")
async def show_releases(visit: PageVisit, requested: Filter) -> Response:
    """Show what goes out later, the next one first, and what became of it."""
    agent = visit.agent(requested.agent)
    return visit.followed(
        "releases",
        found=await _found(visit.publisher(agent), requested),
        agent=agent,
        requested=requested,
        agents=visit.agents,
        open=_OPEN,
        same=_same(visit.publisher_url(agent), requested),
    )


@router.get("/releases/{action}")
async def ask_before(
    visit: PageVisit, action: Act, release: Annotated[str, Query(max_length=200)], agent: _Word = ""
) -> Response:
    """Show what would go out at once, or not at all."""
    agent = visit.agent(agent)
    one = await visit.publisher(agent).release(release)
    return visit.page(
        "release.html",
        action=action,
        agent=agent,
        one=one,
        open=one["state"] in _OPEN,
        same=_same_act(visit.publisher_url(agent), action, one["name"] or one["id"]),
    )


@router.post("/releases/{action}")
async def change_release(
    action: Act,
    form: Form,
    visit: Annotated[Visit, Depends(acting(TokenScope.DISTRIBUTE))],
) -> Response:
    """Let a release go out at once, or not at all; its own page says what becomes of it."""
    agent = form.get("agent", "")
    release = await _ACTS[action](visit.publisher(agent), form.get("release", ""))
    return back_to("distribution", agent=agent, number=release["package_id"] or release["id"])


async def _found(client: AsyncClient, requested: ReleaseFilter) -> Found:
    """Return what was asked for; without a state what is not over comes before what is."""
    try:
        page = await client.get(_path(requested))
        if requested.state:
            cursor = cursor_of(page["next"])
            return Found(page["releases"], requested.url(cursor=cursor) if cursor else "")
        rows = page["releases"]
        if page["next"]:
            parts = await asyncio.gather(*(client.releases(state=state) for state in _OPEN))
            rows = [one for part in parts for one in part]
    except (Invalid, NotFound) as error:
        return Found(wrong=str(error))
    # One without a moment comes last.
    rows = sorted(rows, key=lambda one: one["at"] or "~")
    over = [one for one in rows if one["state"] not in _OPEN]
    waiting = [one for one in rows if one["state"] in _OPEN]
    return Found([*waiting, *reversed(over)], left_out=bool(page["next"]))


def _path(requested: ReleaseFilter) -> str:
    filters = given(state=requested.state or None, cursor=requested.cursor or None)
    return with_query("/releases", limit=_ROWS, **filters)


def _same(url: str, requested: ReleaseFilter) -> list[Same]:
    words = [f"--state={requested.state.lower()}"] if requested.state else []
    sent = curl(url + _path(requested))
    return [same("This page", ["get", "releases", *words, "--server", url], sent)]


def _same_act(url: str, action: Act, name: str) -> list[Same]:
    at = f"{url}/releases/{segment(name)}"
    sent = curl(at, "PATCH", '{"at": "now"}') if action == "send" else curl(at, "DELETE")
    words = ["release", action, "--server", url, "--", name]
    return [same("Send now" if action == "send" else "Cancel", words, sent)]
