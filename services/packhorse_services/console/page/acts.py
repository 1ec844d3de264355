"""The audit page: who did what, from where, and what came of it, newest first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query, Response

from packhorse.client.errors import Invalid
from packhorse.client.exchange import Document, given, with_query
from packhorse.runtime.audit import AuditOutcome
from packhorse_services.console.act_pages import Act, ActPlace, ReadActs, ShownActs, cut
from packhorse_services.console.audit_lines import AuditLine
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress, address, utc_moment
from packhorse_services.console.frame.visit import PageVisit, Visit, page_router
from packhorse_services.console.parts import of
from packhorse_services.console.upstream import cursor_of, each

router = page_router()

_ROWS = 200
_COMMANDS = 1_000
_MOST_PAGES = 20
"""Pages of distributions that one page of ours looks through."""
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
    cursor: Annotated[str, Query(max_length=1_000)] = ""

    def between(self) -> tuple[datetime | None, datetime | None]:
        """Return the bounds. Raises `ValueError`."""
        return utc_moment(self.since), utc_moment(self.until)

    def takes(self, act: Act, between: tuple[datetime | None, datetime | None]) -> bool:
        """Return whether an act is shown."""
        since, until = between
        during = (not since or act.at >= since) and (not until or act.at <= until)
        return during and self.who in ("", act.who)

    def place(self) -> ActPlace | None:
        """Return behind what the page begins; None at the newest. Raises `ValueError`."""
        return ActPlace.of(self.cursor) if self.cursor else None


Filter = Annotated[ActFilter, Depends()]


@router.get("/audit")
async def show_acts(visit: PageVisit, requested: Filter) -> Response:
    """Show what people and programs did at the publisher, and what was tried in this console."""
    agent, wrong, shown = visit.agent(requested.agent), "", ShownActs()
    try:
        shown = await _acts(visit, agent, requested)
    except (Invalid, ValueError) as error:
        wrong = str(error)
    return visit.page(
        "audit.html",
        400 if wrong else 200,
        agent=agent,
        agents=visit.agents,
        shown=shown,
        since=of(visit.request).audit.since.isoformat(),
        requested=requested,
        wrong=wrong,
        same=_same(visit.publisher_url(agent), requested.who),
    )


async def _acts(visit: Visit, agent: str, requested: ActFilter) -> ShownActs:
    between, place = requested.between(), requested.place()
    commands = await _commands(visit, agent, place)
    sent = await _sent(visit, agent, requested, place)
    kept = [act for read in (commands, sent) for act, _ in read.acts]
    lines: Sequence[AuditLine] = ()
    silent: list[str] = []
    if visit.rights.admin:
        lines = of(visit.request).audit.lines()
        noted, silent = await _noted(visit, requested, place)
        kept += noted
    acts = [one for one in _with_lines(kept, lines) if requested.takes(one, between)]
    begin = (place.at, place.number) if place else None
    acts = [one for one in acts if begin is None or one.key < begin]
    acts.sort(key=lambda one: one.key, reverse=True)
    shown = cut(acts, _ROWS, [one.down_to for one in (commands, sent) if one.down_to])
    if shown.last is None:
        return replace(shown, silent=silent)
    following = ActPlace(*shown.last, sent.cursor(shown), commands.cursor(shown)).cursor
    return replace(shown, following=requested.url(cursor=following), silent=silent)


async def _commands(visit: Visit, agent: str, place: ActPlace | None) -> ReadActs:
    cursor = place.command if place else ""
    path = with_query("/commands", limit=_COMMANDS, **given(cursor=cursor or None))
    page = await visit.publisher(agent).get(path)
    acts = [_command(agent, one) for one in page["commands"]]
    before = [cursor, *(one.number for one in acts)]
    down_to = acts[-1].at if acts and page["next"] else None
    return ReadActs([*zip(acts, before, strict=False)], before[-1], down_to)


async def _sent(visit: Visit, agent: str, requested: ActFilter, place: ActPlace | None) -> ReadActs:
    between, client = requested.between(), visit.publisher(agent)
    acts: list[tuple[Act, str]] = []
    cursor = place.sent if place else ""
    taken = 0
    for _ in range(_MOST_PAGES):
        user = given(user=requested.who or None, cursor=cursor or None)
        page = await client.get(with_query("/distributions", limit=100, **user))
        found = [_distribution(agent, one) for one in page["distributions"]]
        acts += [(act, cursor) for act in found]
        taken += sum(requested.takes(act, between) for act in found)
        following = cursor_of(page["next"])
        is_past = bool(found and between[0] and found[-1].at < between[0])
        if not following or is_past:
            return ReadActs(acts, cursor, None)
        cursor = following
        if taken > _ROWS:
            break
    newest = place.at if place else datetime.now(UTC)
    return ReadActs(acts, cursor, acts[-1][0].at if acts else newest)


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


async def _noted(
    visit: Visit, requested: ActFilter, place: ActPlace | None
) -> tuple[list[Act], list[str]]:
    """Return writes of content and acts on jobs, and who does not answer.

    Two services may tell of one database: each act is there once.
    """
    since, until = requested.between()
    until = min((one for one in (until, place and place.at) if one), default=None)
    query = given(caller=requested.who or None, since=_text(since), until=_text(until))
    path, asked = with_query("/acts", limit=_ROWS + 1, **query), visit.keeping_acts()

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
