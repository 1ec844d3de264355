"""One subscriber: what it announces, how far it is with each agent, and what was done to it."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from packhorse.client.calls.queues import points_of
from packhorse.client.errors import NotFound
from packhorse.client.exchange import Document, segment
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.charts import charts
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.numbers import whole_number
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.states import look_of
from packhorse_services.console.frame.visit import (
    PageVisit,
    Visit,
    acting,
    back_to,
    followed_page,
    page_router,
)
from packhorse_services.console.upstream import each

router = page_router()

_COMMANDS, _POINTS = 20, 60
_Name = Annotated[str, Query(min_length=1, max_length=200)]
_Word = Annotated[str, Query(max_length=20)]

_DONE = {
    "retry": "It is asked to try the first package again at once.",
    "pause": "It is asked to pause; what it has begun it ends.",
    "resume": "It is asked to go on.",
    "stop": "It is asked to stop; once it has, it can be reset.",
    "reset": "It is asked to go on behind the other offset once it is resumed.",
}


@dataclass(frozen=True)
class SubscriberAddress:
    """Whose page it is, with a history of so many hours; `to`: where a reset is to go on."""

    agent: _Name
    subscriber: _Name
    to: _Word = ""
    hours: Annotated[int, Query(ge=1, le=24)] = 1


Address = Annotated[SubscriberAddress, Depends()]


@followed_page(router, "/subscriber")
async def show_subscriber(visit: PageVisit, requested: Address, done: _Word = "") -> Response:
    """Show a subscriber."""
    shown = await _shown(visit, requested)
    return visit.followed("subscriber", **shown, requested=requested, notice=_DONE.get(done, ""))


@router.get("/subscriber/reset")
async def ask_before(visit: PageVisit, requested: Address) -> Response:
    """Say what a reset would mean, and ask for the offset once more."""
    return await _question(visit, requested)


@router.post("/subscriber/reset")
async def reset(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.SUBSCRIBERS_OPERATE))]
) -> Response:
    """Move a stopped subscriber to another offset; the publisher refuses one that is not."""
    requested = SubscriberAddress(
        form.get("agent", ""), form.get("subscriber", ""), form.get("to", "")
    )
    to = whole_number(requested.to, least=-1)
    if to is None or form.get("typed", "").strip() != f"reset {to}":
        return await _question(visit, requested, "That was not the text to type.")
    command = await visit.publisher(requested.agent).reset(requested.subscriber, to)
    audit.note(visit.request, command=command["command_id"])
    return back_to(
        "subscriber", agent=requested.agent, subscriber=requested.subscriber, done="reset"
    )


async def _question(visit: Visit, requested: SubscriberAddress, wrong: str = "") -> Response:
    one = await visit.publisher(requested.agent).subscriber(requested.subscriber)
    to = whole_number(requested.to, least=-1)
    if to is None:
        wrong = "An offset is a whole number from -1 on; -1 begins with the first package."
    return visit.page(
        "reset.html",
        400 if wrong else 200,
        requested=requested,
        one=one,
        to=to,
        wrong=wrong,
        same=_same(visit, requested)[-2:],
    )


async def _shown(visit: Visit, requested: SubscriberAddress) -> dict[str, Any]:
    """Return what the templates need. Raises `NotFound` where its own agent knows none."""
    name = requested.subscriber

    async def ask(agent: str) -> Document | None:
        try:
            return await visit.publisher(agent).subscriber(name)
        except NotFound:
            return None

    client = visit.publisher(requested.agent)
    one = await client.subscriber(name)
    others = await each([agent for agent in visit.agents if agent != requested.agent], ask)
    commands = await client.commands(subscriber=name, limit=_COMMANDS)
    past = await visit.remembered(
        ("queue", requested.agent, name, requested.hours),
        lambda: client.queue_history(name, hours=requested.hours, points=_POINTS),
    )
    return {
        "charts": charts(past) if past else [],
        "points": points_of(past)[::-1] if past else [],
        "one": one,
        "look": look_of(one["state"]),
        "others": [other for other in others if other.value or other.error],
        "commands": commands,
        "same": _same(visit, requested),
        "served": name in visit.content_urls,
    }


def _same(visit: Visit, requested: SubscriberAddress) -> list[Same]:
    url, name = visit.publisher_url(requested.agent), requested.subscriber
    root, to = f"{url}/subscribers/{segment(name)}", whole_number(requested.to, least=-1)
    reset_to = 0 if to is None else to
    return [
        same("This page", ["get", "subscribers", "--server", url], curl(root)),
        same(
            "Its history",
            ["get", "queue-history", "--hours", requested.hours, "--server", url, "--", name],
            curl(f"{url}/queues/{segment(name)}/history?hours={requested.hours}"),
        ),
        same(
            "Stop", ["stop", "subscriber", "--server", url, "--", name], curl(f"{root}/stop", "PUT")
        ),
        same(
            "Reset, once it is stopped",
            ["reset", "offset", "--to", reset_to, "--server", url, "--", name],
            curl(f"{root}/offset", "PATCH", f'{{"offset": {reset_to}}}'),
        ),
    ]
