"""The first page: every queue, what stands still first, with the reason and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Depends, Query, Response

from packhorse.client.exchange import Document
from packhorse_services.console.frame.charts import Trend, trends
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.states import URGENT, Look, look_of
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router
from packhorse_services.console.upstream import Answered, each

router = page_router()

_MOST_ROWS = 250
"""A page of more is slow, and nobody reads it; the filter narrows it down."""

_Text = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class OverviewFilter:
    """Which queues are shown; empty: all."""

    find: _Text = ""
    state: _Text = ""
    agent: _Text = ""

    def takes(self, agent: str, queue: Document) -> bool:
        """Return whether a queue is shown."""
        found = self.find.casefold() in str(queue["subscriber"]).casefold()
        return found and self.state in ("", queue["state"]) and self.agent in ("", agent)


Filter = Annotated[OverviewFilter, Depends()]


@dataclass(frozen=True, slots=True)
class Row:
    """The queue of a subscriber at an agent."""

    agent: str
    queue: Document
    look: Look
    trend: Trend | None

    @property
    def order(self) -> tuple[int, int, str]:
        """What stands still comes first, then what is long."""
        return self.look.rank, -int(self.queue["at_least"]), str(self.queue["subscriber"])


@dataclass(frozen=True, slots=True)
class Overview:
    """Rows in their order; `away` are publishers that did not answer."""

    rows: Sequence[Row]
    left_out: int
    all: int
    urgent: Sequence[Row]
    states: Sequence[tuple[str, int]]
    agents: Sequence[str]
    away: Sequence[Answered[list[Document]]]
    same: Sequence[Same]


@followed_page(router, "/overview")
async def show_overview(visit: PageVisit, requested: Filter) -> Response:
    """Show the queue of each subscriber at each publisher agent."""
    shown = await _overview(visit, requested)
    return visit.followed("overview", shown=shown, requested=requested)


async def _overview(visit: Visit, requested: OverviewFilter) -> Overview:
    agents = visit.agents
    answers = await each(agents, lambda agent: visit.publisher(agent).queues())
    known = await _known(visit, answers)
    rows = sorted(
        (row for row in known if requested.takes(row.agent, row.queue)), key=lambda row: row.order
    )
    shown = rows[:_MOST_ROWS]
    return Overview(
        rows=shown,
        left_out=len(rows) - len(shown),
        all=len(known),
        urgent=[row for row in shown if row.look.rank <= URGENT][:20],
        states=_counted(known),
        agents=agents,
        away=[answer for answer in answers if answer.value is None],
        same=[
            same(agent, ["get", "queues", "--server", url], curl(f"{url}/queues"))
            for agent in agents
            if (url := visit.publisher_url(agent))
        ],
    )


async def _known(visit: Visit, answers: Sequence[Answered[list[Document]]]) -> list[Row]:
    """Return all queues that publishers have shown, each with its line."""
    shows = [answer.name for answer in answers if answer.value]
    lines = {one.name: one.value or {} for one in await each(shows, partial(_trends, visit))}
    return [
        Row(
            answer.name, queue, look_of(queue["state"]), lines[answer.name].get(queue["subscriber"])
        )
        for answer in answers
        for queue in answer.value or ()
    ]


async def _trends(visit: Visit, agent: str) -> Mapping[str, Trend]:
    """Return the lines of an agent's subscribers; it has just shown their queues."""

    async def drawn() -> Mapping[str, Trend]:
        return trends(await visit.publisher(agent).get("/queue-history"))

    return await visit.remembered(("trends", agent), drawn) or {}


def _counted(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return how many queues are in each state, the most urgent state first."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.queue["state"]] = counts.get(row.queue["state"], 0) + 1
    return sorted(counts.items(), key=lambda one: (look_of(one[0]).rank, one[0]))
