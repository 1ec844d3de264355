"""Clearing a queue up to what was seen: counted, shown, and done once its number is typed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.exchange import Document, segment
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import curl, same
from packhorse_services.console.frame.numbers import whole_number
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import PageVisit, Visit, acting, back_to, page_router

router = page_router()

MOST = 10_000
"""Packages that one form removes where the publisher does not know their number at once."""
_EXAMPLES = 5

_Name = Annotated[str, Query(min_length=1, max_length=200)]
_Offset = Annotated[int, Query(ge=0, lt=2**63)]


@router.get("/queue/clear")
async def ask_before(
    visit: PageVisit, agent: _Name, subscriber: _Name, up_to: _Offset | None = None
) -> Response:
    """Show what would be removed, and ask for the number; without `up_to` all that waits now."""
    return await _question(visit, agent, subscriber, up_to)


@router.post("/queue/clear")
async def clear(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.QUEUES_CLEAR))]
) -> Response:
    """Remove what was shown and confirmed; what comes later has a higher offset, and stays."""
    agent, subscriber = form.get("agent", ""), form.get("subscriber", "")
    up_to, count = whole_number(form.get("up_to", "")), whole_number(form.get("count", ""))
    client = visit.publisher(agent)
    if up_to is None or count is None or form.get("typed", "").strip() != f"clear {count}":
        return await _question(visit, agent, subscriber, up_to, "That was not the text to type.")
    command = await client.clear(subscriber, up_to=up_to)
    audit.note(visit.request, command=command["command_id"])
    return back_to("queue", agent=agent, subscriber=subscriber, done="clear")


@dataclass(frozen=True, slots=True)
class Counted:
    """What a clear up to `up_to` would remove, and the first of it."""

    queue: Document
    up_to: int
    count: int
    examples: Sequence[Document]

    @property
    def more(self) -> bool:
        """Whether more waits than that."""
        return bool(self.queue["at_least"] > self.count)


async def _counted(client: AsyncClient, subscriber: str, up_to: int | None) -> Counted:
    bound = await client.clear_bound(subscriber, up_to=up_to)
    last, count = bound["up_to_offset"], bound["packages"]
    exact = count == bound["packages_at_most"]
    queue = await client.queue(subscriber, limit=_EXAMPLES if exact else MOST, up_to=last)
    meant = [one for one in queue["entries"] if one["offset"] <= last]
    if not exact:
        count, last = len(meant), meant[-1]["offset"] if meant else 0
    return Counted(queue, last, count, meant[:_EXAMPLES])


async def _question(
    visit: Visit, agent: str, subscriber: str, up_to: int | None, wrong: str = ""
) -> Response:
    meant = await _counted(visit.publisher(agent), subscriber, up_to)
    url = visit.publisher_url(agent)
    words = ["clear", "queue", "--up-to", meant.up_to, "--server", url, "--", subscriber]
    body = f'{{"up_to_offset": {meant.up_to}}}'
    queue = f"{url}/queues/{segment(subscriber)}"
    lines = [same("What waits", ["get", "queue", "--server", url, "--", subscriber], curl(queue))]
    if meant.count:
        lines.append(same("Clear", words, curl(f"{queue}/clear", "POST", body)))
    return visit.page(
        "clear.html",
        400 if wrong else 200,
        agent=agent,
        subscriber=subscriber,
        meant=meant,
        wrong=wrong,
        same=lines,
    )
