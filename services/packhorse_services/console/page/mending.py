"""What is done about entries of error queues: to one at once, to many once a number is typed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Annotated, Literal
from urllib.parse import parse_qs

from fastapi import Depends, Response
from pydantic import TypeAdapter, ValidationError

from packhorse.client.errors import ClientError
from packhorse.client.exchange import segment
from packhorse.runtime import audit
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import digest_of
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import (
    PageVisit,
    Visit,
    acting,
    back_to,
    not_done_page,
    page_router,
)
from packhorse_services.console.page.failures import (
    Failure,
    FailureFilter,
    Failures,
    Filter,
    gathered,
)

router = page_router()

Act = Literal["redistribute", "dismiss"]
_EXAMPLES = 5
_UP_TO = TypeAdapter(list[tuple[str, str, int]])
"""Agent, subscriber, and the highest offset of its error queue that was shown."""


@router.get("/failures/{action}")
async def ask_before(visit: PageVisit, action: Act, requested: Filter) -> Response:
    """Show how many entries it would be, and ask for that number."""
    return await _question(visit, action, requested)


@router.post("/failures/redistribute")
async def redistribute(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.DISTRIBUTE))]
) -> Response:
    """Distribute the paths of entries again, to whom they were for."""
    return await _act(visit, "redistribute", form)


@router.post("/failures/dismiss")
async def dismiss(
    form: Form, visit: Annotated[Visit, Depends(acting(TokenScope.QUEUES_CLEAR))]
) -> Response:
    """Take entries off their error queues."""
    return await _act(visit, "dismiss", form)


async def _act(visit: Visit, action: Act, form: dict[str, str]) -> Response:
    requested = _filter(form.get("filter", ""))
    offset, count = form.get("offset", ""), form.get("count", "")
    if not offset and form.get("typed", "").strip() != f"{action} {count}":
        return await _question(visit, action, requested, "That was not the text to type.")
    found, said = await _meant(visit, action, requested), ""
    if offset:
        meant = [one for one in found.entries if _is(one, offset)]
        if not meant:
            said = f"Offset {offset} is no longer there to do this with."
    else:
        meant = _up_to(found.entries, form.get("up_to", ""))
        if (str(len(meant)), _digest(meant)) != (count, form.get("seen", "")):
            said = "What was given up has changed; look at it again."
    if said and found.wrong:
        return await not_done_page(visit.request, 503, "\n".join(found.wrong))
    if said and offset:
        return await not_done_page(visit.request, 409, said)
    if said:
        return await _question(visit, action, requested, said)
    back = {} if offset else {"agent": requested.agent, "subscriber": requested.subscriber}
    return await _done(visit, action, meant, back)


async def _done(
    visit: Visit, action: Act, meant: Sequence[Failure], back: Mapping[str, str]
) -> Response:
    """Do it, and return the way back to what is left of the filter."""
    changed, wrong = await _change(visit, action, meant)
    audit.note(visit.request, changed=changed)
    if wrong:
        said = f"{changed} of {len(meant)} done. {wrong}"
        return await not_done_page(visit.request, 409, said)
    return back_to("failures", **back, done=action, count=changed)


def _is(failure: Failure, offset: str) -> bool:
    return str(failure.entry["offset"]) == offset


async def _change(visit: Visit, action: Act, meant: Sequence[Failure]) -> tuple[int, str]:
    """Return how many were changed, and what went wrong with the others."""
    changed = 0
    for (agent, subscriber), found in groupby(meant, _queue):
        offsets = [int(one.entry["offset"]) for one in found]
        client = visit.publisher(agent)
        try:
            if action == "dismiss":
                changed += len((await client.dismiss(subscriber, *offsets))["offsets"])
                continue
            entries = (await client.redistribute_all(subscriber, *offsets))["entries"]
        except ClientError as error:
            return changed, f"{subscriber}: {error}"
        refused = [one for one in entries if not one["distribution_id"]]
        changed += len(entries) - len(refused)
        if refused:
            return changed, f"{subscriber}, {refused[0]['offset']}: {refused[0]['reason']}"
    return changed, ""


async def _meant(visit: Visit, action: Act, requested: FailureFilter) -> Failures:
    """Return what can be done, subscriber by subscriber; what is out again is left as it is."""
    found = await gathered(visit, requested)
    if action == "dismiss":
        return found
    return replace(
        found, entries=[one for one in found.entries if not one.entry["redistributed_as"]]
    )


async def _question(
    visit: Visit, action: Act, requested: FailureFilter, wrong: str = ""
) -> Response:
    found = await _meant(visit, action, requested)
    meant = found.entries
    may = visit.rights.distribute if action == "redistribute" else visit.rights.clear
    return visit.page(
        "mend.html",
        400 if wrong else 200,
        action=action,
        requested=requested,
        found=found,
        count=len(meant),
        up_to=_highest(meant),
        seen=_digest(meant),
        examples=meant[:_EXAMPLES],
        subscribers=sorted({one.subscriber for one in meant}),
        allowed=may,
        wrong=wrong,
        same=_same(visit, action, meant),
    )


def _same(visit: Visit, action: Act, meant: Sequence[Failure]) -> list[Same]:
    """Return it for the first of the queues, each with the offsets that are shown."""
    lines = []
    for (agent, name), found in islice(groupby(meant, _queue), _EXAMPLES):
        offsets = [int(one.entry["offset"]) for one in found]
        url = visit.publisher_url(agent)
        path = f"{url}/queues/{segment(name)}/errors/{action}"
        words = ["errors", action, "--server", url, "--", name, *offsets]
        lines.append(same(name, words, curl(path, "POST", json.dumps({"offsets": offsets}))))
    return lines


def _queue(failure: Failure) -> tuple[str, str]:
    return failure.agent, failure.subscriber


def _highest(meant: Sequence[Failure]) -> str:
    """Return how far each queue was shown, for the form; what comes later is left out by it."""
    found: dict[tuple[str, str], int] = {}
    for one in meant:
        key, offset = (one.agent, one.subscriber), int(one.entry["offset"])
        found[key] = max(offset, found.get(key, offset))
    return json.dumps([(*key, offset) for key, offset in found.items()])


def _up_to(meant: Sequence[Failure], text: str) -> list[Failure]:
    """Return those that lie no higher than what a form says was shown of their queues."""
    try:
        highest = {(agent, name): offset for agent, name, offset in _UP_TO.validate_json(text)}
    except ValidationError:
        return []
    return [
        one
        for one in meant
        if int(one.entry["offset"]) <= highest.get((one.agent, one.subscriber), -1)
    ]


def _digest(meant: Sequence[Failure]) -> str:
    return digest_of((one.agent, one.subscriber, int(one.entry["offset"])) for one in meant)


def _filter(text: str) -> FailureFilter:
    """Return the filter that a form carries as the query of a page."""
    found = {name: values[0] for name, values in parse_qs(text, max_num_fields=10).items()}
    return FailureFilter(
        **{name: found.get(name, "") for name in ("agent", "subscriber", "reason")}
    )
