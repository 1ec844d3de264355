"""What was distributed, and what became of one distribution at each subscriber."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import Invalid
from packhorse.client.exchange import Document, given, segment, with_query
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress, address, utc_moment
from packhorse_services.console.frame.states import look_of
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router
from packhorse_services.console.upstream import cursor_of

router = page_router()

_ROWS = 100
_MOST_SUBSCRIBERS = 250
"""A page of more is slow, and nobody reads it; the filter narrows it down."""
_LONGEST_FORM = 8_000
_MOST_PAGES = 20
"""Pages of the publisher that one page of ours looks through."""

_Text = Annotated[str, Query(max_length=2_048)]
_Word = Annotated[str, Query(max_length=500)]
_Name = Annotated[str, Query(min_length=1, max_length=200)]


@dataclass(frozen=True)
class DistributionSearch(PageAddress):
    """Which distributions are looked for; times are in UTC, as the form of a browser has them."""

    page = "distributions"

    agent: _Word = ""
    path: _Text = ""
    node: _Text = ""
    user: _Word = ""
    state: _Word = ""
    since: _Word = ""
    until: _Word = ""
    cursor: _Word = ""


Filter = Annotated[DistributionSearch, Depends()]


@dataclass(frozen=True)
class OneDistribution(PageAddress):
    """Whose page it is, and at which subscribers; empty: all."""

    page = "distribution"

    agent: _Name
    number: _Name
    find: _Word = ""
    state: _Word = ""

    def takes(self, row: Document) -> bool:
        """Return whether the part of a subscriber is shown."""
        found = self.find.casefold() in str(row["subscriber"]).casefold()
        return found and self.state in ("", row["state"])


One = Annotated[OneDistribution, Depends()]


@dataclass(frozen=True, slots=True)
class FoundDistributions:
    """A page of distributions, newest first; `wrong` is what is wrong with the filter."""

    agent: str
    rows: Sequence[Document]
    following: str
    same: Sequence[Same]
    wrong: str = ""


@router.get("/distributions")
async def show_distributions(visit: PageVisit, requested: Filter) -> Response:
    """Show what was distributed, newest first."""
    found = await _found(visit, requested)
    return visit.page("distributions.html", found=found, requested=requested, agents=visit.agents)


@followed_page(router, "/distribution")
async def show_distribution(visit: PageVisit, requested: One) -> Response:
    """Show where one distribution is."""
    return visit.followed("distribution", **await _one(visit, requested))


async def _one(visit: Visit, requested: OneDistribution) -> dict[str, Any]:
    agent, number = requested.agent, requested.number
    found = await visit.publisher(agent).distribution(number)
    rows = sorted(
        filter(requested.takes, found["subscribers"]),
        key=lambda one: (look_of(one["state"]).rank, one["subscriber"]),
    )
    url = visit.publisher_url(agent)
    lines = same(
        "This page",
        ["get", "distribution", "--server", url, "--", number],
        curl(f"{url}/distributions/{segment(number)}"),
    )
    return {
        "requested": requested,
        "agent": agent,
        "one": found,
        "rows": rows[:_MOST_SUBSCRIBERS],
        "left_out": len(rows[_MOST_SUBSCRIBERS:]),
        "counts": Counter(one["state"] for one in found["subscribers"]),
        "same": [lines],
        "again": _again(agent, found),
    }


def _again(agent: str, found: Document) -> str:
    """Return the address of the form that distributes the same; empty where it can't hold it."""
    deep, paths = found["deep_paths"], found["paths"]
    text = "\n".join(deep or paths)
    if (deep and paths) or not text or len(text) > _LONGEST_FORM:
        return ""
    named = {"to": ",".join(found.get("targets", ())), "deep": "1" if deep else ""}
    return address("distribute", agent=agent, paths=text, action=found["action"], **named)


async def _found(visit: Visit, requested: DistributionSearch) -> FoundDistributions:
    agent = visit.agent(requested.agent)
    client, url = visit.publisher(agent), visit.publisher_url(agent)
    path = _path(requested)
    filters = [f"--path-prefix={requested.path}"] if requested.path else []
    filters += [f"--node={requested.node}"] if requested.node else []
    filters += [f"--user={requested.user}"] if requested.user else []
    filters += [f"--state={requested.state.lower()}"] if requested.state else []
    lines = [
        same("This page", ["get", "distributions", *filters, "--server", url], curl(url + path))
    ]
    try:
        between = utc_moment(requested.since), utc_moment(requested.until)
        rows, following = await rows_between(client, path, between)
    except (Invalid, ValueError) as error:
        return FoundDistributions(agent, [], "", [], str(error))
    cursor = cursor_of(following)
    return FoundDistributions(agent, rows, requested.url(cursor=cursor) if cursor else "", lines)


async def rows_between(
    client: AsyncClient, path: str, between: tuple[datetime | None, datetime | None]
) -> tuple[list[Document], str]:
    """Return rows of a time, newest first, and where to look further; whole pages are taken."""
    since, until = between
    rows: list[Document] = []
    for _ in range(_MOST_PAGES):
        page = await client.get(path)
        for one in page["distributions"]:
            at = datetime.fromisoformat(one["accepted_at"])
            if since and at < since:
                return rows, ""
            if not until or at <= until:
                rows.append(one)
        path = page["next"] or ""
        if not path or len(rows) >= _ROWS:
            break
    return rows, path


def _path(requested: DistributionSearch) -> str:
    filters = given(
        path_prefix=requested.path or None,
        node=requested.node or None,
        user=requested.user or None,
        state=requested.state or None,
        cursor=requested.cursor or None,
    )
    return with_query("/distributions", limit=_ROWS, **filters)
