"""Error queues of all subscribers in one place, by reason: distributed again, or dismissed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Query, Response

from packhorse.client.exchange import Document, segment
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress
from packhorse_services.console.frame.visit import PageVisit, Visit, page_router
from packhorse_services.console.upstream import Answered, each

router = page_router()

MOST = 1_000
"""Entries of one subscriber that are looked at; the publisher changes as many at a time."""
_MOST_QUEUES = 100
_SHOWN = 10
"""Entries of a group on the page."""
_GROUPS = 50
"""Groups on the page."""
_LONGEST_KIND = 80
_PARTICULAR = re.compile(r"[\"'/\d(\[]")
"""Where a reason begins to speak of one package."""

_Word = Annotated[str, Query(max_length=200)]
_Reason = Annotated[str, Query(max_length=1_000)]
_Done = Annotated[str, Query(max_length=20)]
_Count = Annotated[int, Query(ge=0, le=2**31)]

_DONE = {"redistribute": "distributed again", "dismiss": "dismissed"}


@dataclass(frozen=True)
class FailureFilter(PageAddress):
    """Which entries are meant; empty: all."""

    page = "failures"

    agent: _Word = ""
    subscriber: _Word = ""
    reason: _Reason = ""

    def takes(self, reason: str) -> bool:
        """Return whether a reason is meant, as the publisher decides it."""
        return self.reason.casefold() in reason.casefold()


Filter = Annotated[FailureFilter, Depends()]


@dataclass(frozen=True, slots=True)
class Failure:
    """An entry of an error queue."""

    agent: str
    subscriber: str
    entry: Document

    @property
    def kind(self) -> str:
        """What its reason has in common with others: the text before it speaks of one package."""
        line = str(self.entry["reason"]).partition("\n")[0]
        found = _PARTICULAR.split(line, maxsplit=1)[0].strip()[:_LONGEST_KIND]
        return found or line[:_LONGEST_KIND]


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Entries whose reasons begin alike."""

    kind: str
    entries: Sequence[Failure]

    @property
    def shown(self) -> Sequence[Failure]:
        """The first of them."""
        return self.entries[:_SHOWN]

    @property
    def subscribers(self) -> list[str]:
        """Who has given them up."""
        return sorted({one.subscriber for one in self.entries})


@dataclass(frozen=True, slots=True)
class Failures:
    """What was found; `wrong` says who did not answer, `more` that not all was looked at."""

    entries: Sequence[Failure]
    more: bool = False
    wrong: Sequence[str] = field(default=())

    def grouped(self) -> list[ReasonGroup]:
        """Return the entries by what their reasons have in common, the largest group first."""
        groups: dict[str, list[Failure]] = {}
        for one in self.entries:
            groups.setdefault(one.kind, []).append(one)
        found = [ReasonGroup(kind, groups[kind]) for kind in sorted(groups)]
        return sorted(found, key=lambda group: -len(group.entries))


@router.get("/failures")
async def show_failures(
    visit: PageVisit, requested: Filter, done: _Done = "", count: _Count = 0
) -> Response:
    """Show what subscribers gave up on, by reason."""
    found = await gathered(visit, requested)
    notice = f"{count} {_DONE[done]}." if done in _DONE else ""
    return visit.page(
        "failures.html",
        found=found,
        groups=found.grouped(),
        most=_GROUPS,
        requested=requested,
        agents=visit.agents,
        notice=notice,
        same=_same(visit, found),
    )


async def gathered(visit: Visit, requested: FailureFilter) -> Failures:
    """Return the entries that a filter means, of all error queues that the visitor may see."""
    agents = [one for one in visit.agents if requested.agent in ("", one)]
    answers = await each(agents, lambda agent: visit.publisher(agent).queues())
    queues = _with_errors(answers, requested.subscriber)
    names = {str(number): queue for number, queue in enumerate(queues[:_MOST_QUEUES])}

    async def ask(number: str) -> list[Document]:
        agent, subscriber = names[number]
        return await visit.publisher(agent).errors(subscriber, limit=MOST)

    found = await each([*names], ask)
    entries = [Failure(*names[one.name], entry) for one in found for entry in one.value or ()]
    return Failures(
        [one for one in entries if requested.takes(one.entry["reason"])],
        more=len(queues) > _MOST_QUEUES or any(len(one.value or ()) == MOST for one in found),
        wrong=[one.error for one in (*answers, *found) if one.error],
    )


def _with_errors(
    answers: Sequence[Answered[list[Document]]], subscriber: str
) -> list[tuple[str, str]]:
    """Return agent and subscriber of the error queues that hold anything; empty: of everybody."""
    return [
        (answer.name, str(queue["subscriber"]))
        for answer in answers
        for queue in answer.value or ()
        if queue["errors"] and subscriber in ("", queue["subscriber"])
    ]


def _same(visit: Visit, found: Failures) -> list[Same]:
    queues = sorted({(one.agent, one.subscriber) for one in found.entries})[:_SHOWN]
    urls = {agent: visit.publisher_url(agent) for agent in visit.agents}
    every = [
        same("Who gave up how many", ["get", "queues", "--server", url], curl(f"{url}/queues"))
        for url in urls.values()
    ]
    return every + [
        same(
            name,
            ["get", "errors", "--server", urls[agent], "--", name],
            curl(f"{urls[agent]}/queues/{segment(name)}/errors"),
        )
        for agent, name in queues
    ]
