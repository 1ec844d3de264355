"""The audit page: who did what, from where, and what came of it, newest first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from packhorse.client.errors import Invalid
from packhorse.client.exchange import Document, given, with_query
from packhorse.runtime.audit import AuditOutcome
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.audit_lines import AuditLine
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress, address, utc_moment
from packhorse_services.console.frame.visit import PageVisit, Visit
from packhorse_services.console.page.distributions import rows_between
from packhorse_services.console.parts import of
from packhorse_services.console.upstream import each

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)

_ROWS = 200
_COMMANDS = 1_000
_JOB = re.compile(r"/jobs/(\d{1,19})/")
_Word = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class ActFilter(PageAddress):
    """Which acts are shown; times are in UTC. Empty: all of the first agent."""

    page = "audit"

    agent: _Word = ""
    who: _Word = ""
    since: _Word = ""
    until: _Word = ""

    def between(self) -> tuple[datetime | None, datetime | None]:
        """Return the bounds. Raises `ValueError`."""
        return utc_moment(self.since), utc_moment(self.until)

    def takes(self, act: "Act", between: tuple[datetime | None, datetime | None]) -> bool:
        """Return whether an act is shown."""
        since, until = between
        during = (not since or act.at >= since) and (not until or act.at <= until)
        return during and self.who in ("", act.who)


Filter = Annotated[ActFilter, Depends()]


@dataclass(frozen=True, slots=True)
class Act:
    """One act; `where` is the address that it came from, empty where only the log knows it."""

    at: datetime
    who: str
    where: str
    what: str
    says: str
    link: str
    result: str
    number: str


@router.get("/audit")
async def show_acts(visit: PageVisit, requested: Filter) -> Response:
    """Show what people and programs did at the publisher, and what was tried in this console."""
    if isinstance(visit, Response):
        return visit
    agent, wrong, acts, silent = visit.agent(requested.agent), "", list[Act](), list[str]()
    try:
        acts, silent = await _acts(visit, agent, requested)
    except (Invalid, ValueError) as error:
        wrong = str(error)
    return visit.page(
        "audit.html",
        400 if wrong else 200,
        agent=agent,
        agents=visit.agents,
        acts=acts[:_ROWS],
        more=len(acts) > _ROWS,
        silent=silent,
        since=of(visit.request).audit.since.isoformat(),
        requested=requested,
        wrong=wrong,
        same=_same(visit.publisher_url(agent), requested.who),
    )


async def _acts(visit: Visit, agent: str, requested: ActFilter) -> tuple[list[Act], list[str]]:
    between = requested.between()
    client = visit.publisher(agent)
    commands = (await client.get(with_query("/commands", limit=_COMMANDS)))["commands"]
    user = given(user=requested.who or None)
    sent, _ = await rows_between(client, with_query("/distributions", limit=100, **user), between)
    kept = [
        *(_command(agent, one) for one in commands),
        *(_distribution(agent, one) for one in sent),
    ]
    lines: Sequence[AuditLine] = ()
    silent: list[str] = []
    if visit.rights.admin:
        lines = of(visit.request).audit.lines()
        noted, silent = await _noted(visit, requested)
        kept += noted
    acts = [one for one in _with_lines(kept, lines) if requested.takes(one, between)]
    return sorted(acts, key=lambda one: one.at, reverse=True), silent


def _with_lines(kept: Sequence[Act], lines: Sequence[AuditLine]) -> list[Act]:
    """Return the acts with the addresses of the console's own lines, and what only these tell."""
    came_from = {one.about: one.address for one in lines}
    found = [replace(one, where=came_from.get(one.number, one.where)) for one in kept]
    known = {one.number for one in kept}
    alone = [one for one in lines if one.about not in known]
    return found + [
        Act(one.at, one.who, one.address, one.what, one.says, "", one.outcome, one.about)
        for one in alone
    ]


async def _noted(visit: Visit, requested: ActFilter) -> tuple[list[Act], list[str]]:
    """Return writes of content and acts on jobs, and who does not answer.

    Two services may tell of one database: each act is there once.
    """
    since, until = requested.between()
    query = given(caller=requested.who or None, since=_text(since), until=_text(until))
    path, asked = with_query("/acts", limit=_ROWS, **query), visit.keeping_acts()

    async def ask(name: str) -> list[Document]:
        kind, client, _ = asked[name]
        return list((await client.get(path, kind))["acts"])

    answers = await each(list(asked), ask)
    found: dict[tuple[int, str], Act] = {}
    for answer in answers:
        _, _, page = asked[answer.name]
        found |= {(one["id"], one["at"]): _act(page, one) for one in answer.value or ()}
    return list(found.values()), [one.name for one in answers if one.error]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _act(at: str, one: Document) -> Act:
    path, job = str(one["object"]), _JOB.match(one["object"])
    link = address(f"jobs/{job[1]}", at=at) if job else ""
    if path.startswith("/content/") and one["method"] != "DELETE":
        link = address("content", path=path.removeprefix("/content"))
    return Act(
        datetime.fromisoformat(one["at"]),
        one["caller"],
        one["address"],
        f"{one['method']} {path}",
        ", ".join(f"{name} {value}" for name, value in one["about"].items()),
        link,
        AuditOutcome.DONE,
        one["trace"],
    )


def _command(agent: str, one: Document) -> Act:
    subscriber, up_to = str(one["subscriber"]), one["offset"]
    says = "" if up_to is None else f"up to {up_to}"
    return Act(
        datetime.fromisoformat(one["issued_at"]),
        one["issued_by"],
        "",
        f"{one['kind'].lower()} {subscriber}",
        ", ".join(part for part in (says, one["reason"]) if part),
        address("subscriber", agent=agent, subscriber=subscriber),
        one["state"],
        one["command_id"],
    )


def _distribution(agent: str, one: Document) -> Act:
    paths = [*one["paths"], *one["deep_paths"]]
    return Act(
        datetime.fromisoformat(one["accepted_at"]),
        one["user"],
        "",
        f"distribute {one['action']}",
        ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else ""),
        address("distribution", agent=agent, number=one["id"]),
        one["state"],
        one["id"],
    )


def _same(url: str, who: str) -> list[Same]:
    words = [f"--user={who}"] if who else []
    sent = with_query("/distributions", limit=100, **given(user=who or None))
    return [
        same("Commands", ["get", "commands", "--server", url], curl(f"{url}/commands?limit=1000")),
        same("Distributions", ["get", "distributions", *words, "--server", url], curl(url + sent)),
    ]
