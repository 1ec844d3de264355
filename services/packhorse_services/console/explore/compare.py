"""Are they equal? What differs at subscribers from the author, and mending it at one of them."""

import asyncio
import json
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.calls.queues import filter_of
from packhorse.client.errors import ClientError, NotFound
from packhorse.client.exchange import Document
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse.runtime.places import who
from packhorse.runtime.problems import Problem
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress, digest_of
from packhorse_services.console.frame.session import Form, token_of
from packhorse_services.console.frame.visit import PageVisit, Visit, acting, back_to, page_router
from packhorse_services.console.parts import of
from packhorse_services.console.upstream import Answered, each

router = page_router()

_MOST_SUBSCRIBERS = 20
_MOST = 1_000
_SHOWN = 200
_PATIENCE_S = 30.0

_Path = Annotated[str, Query(max_length=2_048)]
_Name = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class Comparison(PageAddress):
    """What is compared: a subtree at one subscriber, or with an empty name at all of them.

    `show` is a node whose two versions are shown side by side.
    """

    page = "compare"

    path: _Path = "/"
    subscriber: _Name = ""
    agent: _Name = ""
    show: _Path = ""


Requested = Annotated[Comparison, Depends()]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One property as the author and the subscriber have it."""

    name: str
    author: str
    there: str


@router.get("/compare")
async def show_comparison(visit: PageVisit, requested: Requested, asked: _Name = "") -> Response:
    """Show the form, and once it is asked for, what differs at each subscriber, or at one."""
    return await _page(visit, requested, asked=bool(asked or requested.subscriber))


@router.post("/compare/mend")
async def mend(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.DISTRIBUTE))]
) -> Response:
    """Distribute what differs again, to that subscriber alone: as much as was shown, or nothing."""
    requested = Comparison(*(form.get(one, "") for one in ("path", "subscriber", "agent")))
    count = form.get("count", "")
    if not form.get("key") or form.get("typed", "").strip() != f"mend {count}":
        return await _page(visit, requested, wrong="That was not the text to type.")
    found = await _compared(visit, requested, requested.subscriber)
    if not found["differences"] or _digest(found["differences"]) != form.get("seen"):
        return await _page(visit, requested, wrong="What differs has changed; look at it again.")
    client = _client(visit, requested, requested.subscriber)
    mended = await client.mend(requested.subscriber, found["differences"], key=form["key"])
    audit.note(
        visit.request,
        mended=len(found["differences"]),
        distribution=", ".join(mended.ids),
        targets=requested.subscriber,
        left_out=len(mended.changed),
    )
    if mended.changed:
        said = f"Left out, for the author has changed it meanwhile: {', '.join(mended.changed)}."
        return await _page(visit, requested, wrong=said)
    return back_to("distribution", agent=visit.agent(requested.agent), number=mended.ids[0])


async def _page(
    visit: Visit, requested: Comparison, *, asked: bool = True, wrong: str = ""
) -> Response:
    may = visit.rights.read and "" in visit.content_urls
    names = [requested.subscriber] if requested.subscriber else _names(visit)[:_MOST_SUBSCRIBERS]
    answers: list[Answered[Document]] = []
    status = 400 if wrong else 200
    if may and asked:
        try:
            answers = await _all_compared(visit, requested, names)
        except Problem as problem:
            status, wrong = problem.status_code, f"{wrong} {problem.detail}".strip()
    sides = await _sides(visit, requested) if may and requested.show else []
    return visit.page(
        "compare.html",
        status,
        requested=requested,
        answers=answers,
        sides=sides,
        names=_names(visit),
        most=_MOST_SUBSCRIBERS,
        shown=_SHOWN,
        known="" in visit.content_urls,
        digest=_digest,
        key=uuid.uuid4().hex,
        wrong=wrong,
        same=_same(visit, requested),
    )


def _digest(differences: Sequence[Document]) -> str:
    return digest_of((one["kind"], one["path"]) for one in differences)


def _names(visit: Visit) -> list[str]:
    return [name for name in visit.content_urls if name]


def _client(visit: Visit, requested: Comparison, subscriber: str) -> AsyncClient:
    """Return a client of all three. Raises `ClientError` where the console was not told of one."""
    urls = visit.content_urls
    if subscriber not in urls or not subscriber:
        raise ClientError(f"this console was not told where {subscriber} is served")
    compared = of(visit.request).compared
    return compared.client(visit.agent(requested.agent), token_of(visit.request)).reaching(
        {"content": urls[""], "subscriber": urls[subscriber]}
    )


def _place(visit: Visit) -> AbstractContextManager[None]:
    """Hold a place for a comparison. Raises `Problem` 429 for who has one, 503 for too many."""
    return of(visit.request).comparisons.taken(who(visit.request.scope))


async def _all_compared(
    visit: Visit, requested: Comparison, names: Sequence[str]
) -> list[Answered[Document]]:
    """Return what differs at several subscribers, in one place. Raises `Problem`."""
    with _place(visit):
        return await each(names, lambda name: _differing(visit, requested, name))


async def _compared(visit: Visit, requested: Comparison, subscriber: str) -> Document:
    """Return what differs, in a place of its own. Raises `ClientError`, `Problem`."""
    with _place(visit):
        return await _differing(visit, requested, subscriber)


async def _differing(visit: Visit, requested: Comparison, subscriber: str) -> Document:
    """Return what differs. Raises `ClientError`, also for a subtree that takes too long."""
    client = _client(visit, requested, subscriber)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await client.compare(requested.path, subscriber, limit=_MOST)
    except TimeoutError:
        said = f"more than can be compared here in {_PATIENCE_S:.0f} s; packhorse compare can"
        raise ClientError(said) from None


async def _sides(visit: Visit, requested: Comparison) -> Sequence[SideBySide]:
    """Return a node's members at the author and there, those that differ first.

    Without the properties that the subscriber leaves out.
    """
    name = requested.subscriber
    own = filter_of(await visit.publisher(visit.agent(requested.agent)).subscriber(name))
    author, there = [
        {one: value for one, value in members.items() if not own.leaves_out(one)}
        for members in (
            await _members(visit, "", requested.show),
            await _members(visit, name, own.own(requested.show)),
        )
    ]
    rows = [
        SideBySide(name, author.get(name, ""), there.get(name, "")) for name in {**author, **there}
    ]
    return sorted(rows, key=lambda one: one.author == one.there)[:_SHOWN]


async def _members(visit: Visit, at: str, path: str) -> dict[str, str]:
    try:
        node = await visit.content(at).node(path)
    except NotFound:
        return {}
    members: dict[str, Any] = {"type": node["type"], **node["properties"]}
    members |= {f"binary {name}": one["digest"] for name, one in node["binaries"].items()}
    return {name: _text(value)[:1_000] for name, value in members.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _same(visit: Visit, requested: Comparison) -> list[Same]:
    urls = visit.content_urls
    name = requested.subscriber or next(iter(_names(visit)), "")
    if "" not in urls or name not in urls:
        return []
    words = ["compare", "--subscriber", name, "--content", urls[""]]
    words += ["--subscriber-url", urls[name]]
    words += ["--server", visit.publisher_url(visit.agent(requested.agent)), "--", requested.path]
    return [same("Compare", words, curl(f"{urls[name]}/digests{requested.path}"))]
