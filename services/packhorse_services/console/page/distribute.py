"""Distributing from the console: what it would be is shown first, and sent once."""

import json
import uuid
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from packhorse.client.calls import distributing
from packhorse.client.errors import ClientError
from packhorse.client.exchange import Document, given
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import utc_moment
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import (
    PageVisit,
    Visit,
    acting,
    back_to,
    may_be_done,
    page_router,
)

router = page_router()

ACTIONS = ("ADD", "DELETE", "INVALIDATE", "TEST")

_Text = Annotated[str, Query(max_length=8_000)]
_Word = Annotated[str, Query(max_length=200)]
_MOST_SUBSCRIBERS = 100
_FIELDS = ("agent", "paths", "deep", "action", "at", "to")


@dataclass(frozen=True)
class DistributeForm:
    """What the form says: paths line by line, `at` in UTC as a browser's form has it.

    `to` names subscribers with commas between; empty: all.
    """

    agent: _Word = ""
    paths: _Text = ""
    deep: _Word = ""
    action: _Word = "ADD"
    at: _Word = ""
    to: _Text = ""

    def body(self) -> dict[str, Any]:
        """Return the body of the request. Raises `ValueError` for what is no moment."""
        named = [line.strip("\r") for line in self.paths.split("\n") if line.strip()]
        moment = utc_moment(self.at)
        return {
            "action": self.action,
            "deep_paths" if self.deep else "paths": named,
            **given(at=moment.isoformat() if moment else None, targets=self.targets() or None),
        }

    def targets(self) -> list[str]:
        """Return the subscribers that it is for; none: all."""
        return [name.strip() for name in self.to.split(",") if name.strip()]


Filled = Annotated[DistributeForm, Depends()]
_EXAMPLE = DistributeForm(paths="/site/news")
"""What the command line is shown for before anything is filled in."""


@router.get("/distribute")
async def show_distribute(visit: PageVisit, requested: Filled) -> Response:
    """Show the form, and with paths what a distribution of them would be."""
    return await _form(visit, requested)


@router.post("/distribute")
async def distribute(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.DISTRIBUTE))]
) -> Response:
    """Distribute what was shown; the form's key lets it happen once, however often it is sent."""
    requested = DistributeForm(**{name: form.get(name, "") for name in _FIELDS})
    try:
        accepted = await _sent(visit, requested, form.get("key", ""))
    except (ClientError, ValueError) as error:
        if may_be_done(error):  # a form with another key would do it again
            raise
        return await _form(visit, requested, str(error))
    audit.note(visit.request, distribution=accepted["id"])
    return back_to("distribution", agent=visit.agent(requested.agent), number=accepted["id"])


async def _sent(visit: Visit, requested: DistributeForm, key: str) -> Document:
    if not key:
        raise ValueError("the form has no key; open this page anew")
    client = visit.publisher(visit.agent(requested.agent))
    return await client.run(distributing.request(requested.body(), key))


async def _form(visit: Visit, requested: DistributeForm, wrong: str = "") -> Response:
    report, failed = None, wrong
    agent = visit.agent(requested.agent)
    if visit.rights.distribute and requested.paths.strip() and not wrong:
        try:
            body = {name: one for name, one in requested.body().items() if name != "at"}
            report = await visit.publisher(agent).run(distributing.dry_run_of(body))
        except (ClientError, ValueError) as error:
            failed = str(error)
    return visit.page(
        "distribute.html",
        400 if wrong else 200,
        requested=requested,
        agent=agent,
        agents=visit.agents,
        actions=ACTIONS,
        report=report,
        shown=_MOST_SUBSCRIBERS,
        key=uuid.uuid4().hex,
        wrong=failed,
        same=_same(visit, agent, requested if report else _EXAMPLE),
    )


def _same(visit: Visit, agent: str, requested: DistributeForm) -> list[Same]:
    url, body = visit.publisher_url(agent), requested.body()
    words = ["--action", requested.action.lower(), *(["--deep"] if requested.deep else [])]
    words += ["--at", body["at"]] if "at" in body else []
    words += [word for name in body.get("targets", ()) for word in ("--to", name)]
    paths = [*body.get("paths", ()), *body.get("deep_paths", ())]
    sent = curl(f"{url}/distribute", "POST", json.dumps(body))
    return [same("Distribute", ["distribute", *words, "--server", url, "--", *paths], sent)]
