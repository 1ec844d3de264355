"""Publishing, and what becomes of it."""

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from packhorse.client.errors import Misused, NotInTime
from packhorse.client.exchange import (
    Document,
    Operation,
    Pause,
    Request,
    deadline_in,
    given,
    listed,
    repeated_by_key,
    requested,
    require_seconds,
    segment,
    with_query,
)

Action = Literal["ADD", "DELETE", "INVALIDATE", "TEST"]

_LOOK_S = 2
"""How long one request waits: a failure at one subscriber is printed before the rest is done."""
_POLL_S = 0.25
_PAGE = 1_000
FAILED = ("REMOVED", "REMOVED_FAILED", "DUPLICATE")
DONE = ("DISTRIBUTED", "PARTLY_DISTRIBUTED")
UNSENT = ("FAILED", "CANCELLED")
"""A release that will not be sent as it is."""


def distribute(
    *paths: str,
    deep: Sequence[str] = (),
    action: Action = "ADD",
    key: str | None = None,
    wait: float | None = None,
    at: datetime | str | None = None,
    to: Sequence[str] = (),
) -> Operation[Document]:
    """Publish nodes, and with `deep` all that is below, to all subscribers; once (R5).

    With `to` they are for the subscribers of these names alone, and the others pass them over.
    With `at` they go out later, as the author has them then, and are a release until then, which
    `reschedule_release` and `cancel_release` take by its id. A text is RFC 3339, or "now".

    Every try has the same idempotency key, `key` or a new one. Without `wait` it returns what was
    accepted (`id`, `state`, `offset`, `repeated`), with it what `wait_for` does.

    Raises:
        NoAnswer: whether it was accepted is unknown; the text has the key to repeat it with.
        NotInTime: it is out, and not everywhere yet.
        Refused, Misused.
    """
    require_seconds(wait)
    body = {"action": action, **paths_of(paths, deep), **given(at=moment_text(at))}
    body |= targets_of(to)
    accepted = yield from request(body, key, awaited=wait is not None)
    if wait is None:
        return accepted
    return (yield from wait_for(accepted["id"], wait))


def dry_run(*paths: str, deep: Sequence[str] = (), action: Action = "ADD") -> Operation[Document]:
    """Return what a distribution would publish, and to whom; nothing is written."""
    return (yield from dry_run_of({"action": action, **paths_of(paths, deep)}))


def dry_run_of(body: Mapping[str, Any]) -> Operation[Document]:
    """Return what a body of `POST /distribute` would publish."""
    return (
        yield from requested(Request("POST", "/distribute/dry-run", body=body, repeatable=True))
    )


def request(
    body: Mapping[str, Any], key: str | None = None, *, awaited: bool = False
) -> Operation[Document]:
    """Publish what a body of `POST /distribute` says; `awaited` says that it is waited for next."""
    prefer = {"Prefer": "wait=0"} if awaited else {}
    headers = {"Idempotency-Key": checked_key(key), **prefer}
    sent = Request("POST", "/distribute", body=body, headers=headers, repeatable=True)
    return (yield from repeated_by_key(sent, "distributed"))


def distribution(distribution_id: str) -> Operation[Document]:
    """Return where a package is: its `state`, and that at each of its `subscribers`."""
    return (yield from requested(Request("GET", f"/distributions/{segment(distribution_id)}")))


def distributions(
    *,
    path_prefix: str | None = None,
    node: str | None = None,
    action: str | None = None,
    user: str | None = None,
    state: str | None = None,
    limit: int = 100,
) -> Operation[list[Document]]:
    """Return what was distributed, newest first, as long as the journal keeps it.

    With a `node` packages that had it: by its path, or in a subtree.
    """
    filters = given(path_prefix=path_prefix, node=node, action=action, user=user, state=state)
    path = with_query("/distributions", **filters)
    return (yield from listed(path, "distributions", limit, _PAGE, "publisher"))


def wait_for(distribution_id: str, seconds: float = 60.0) -> Operation[Document]:
    """Return a distribution once every live subscriber is done with it, or one of them failed.

    It has a field more, `failed`: the reasons by the subscribers that will not have the package;
    by "publisher" that of a release that is not sent.
    A publisher that is away meanwhile is asked again. Raises `NotInTime`.
    """
    deadline = yield from deadline_in(seconds)
    while True:
        now: float = yield Pause()
        left = max(0, min(_LOOK_S, math.ceil(deadline - now)))
        found = yield from requested(
            Request(
                "GET",
                f"/distributions/{segment(distribution_id)}?wait={left}",
                patience_s=max(0.0, deadline - now),
            )
        )
        failed = _failures(found)
        if failed or found["state"] in DONE:
            return Document({**found, "failed": Document(failed)})
        now = yield Pause(_POLL_S)
        if now > deadline:
            text = (
                f"not everywhere after {seconds:g} s: the distribution {distribution_id} is "
                f"{found['state']}"
            )
            raise NotInTime(text, found)


def _failures(found: Document) -> dict[str, str]:
    """Return why a distribution will not be everywhere, by who says so."""
    ended: list[tuple[str, Mapping[str, Any]]] = (
        [("publisher", found)] if found["state"] in UNSENT else []
    )
    ended += [(one["subscriber"], one) for one in those_it_is_for(found) if one["state"] in FAILED]
    return {name: " ".join(filter(None, (one["state"], one["reason"]))) for name, one in ended}


def those_it_is_for(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of the subscribers that a distribution is for: its targets, or all."""
    targets = found.get("targets")
    return [one for one in found["subscribers"] if not targets or one["subscriber"] in targets]


def checked_key(key: str | None) -> str:
    """Return the key, or a new one where none was given. Raises `Misused` for an empty one.

    An empty variable in a program would otherwise make each repetition a request of its own.
    """
    if key is not None and not key.strip():
        raise Misused("the idempotency key is empty; name one, or leave it out")
    return str(uuid.uuid4()) if key is None else key


def moment_text(at: datetime | str | None) -> str | None:
    """Return a moment as a body has it. Raises `Misused` for a time without a time zone."""
    if not isinstance(at, datetime):
        return at
    if at.tzinfo is None:
        raise Misused("a moment needs a time zone, such as datetime.now(UTC) has")
    return at.isoformat()


def targets_of(to: Sequence[str]) -> dict[str, list[str]]:
    """Return the subscribers that a package is for as a body has them; none for all."""
    return {"targets": [to] if isinstance(to, str) else list(to)} if to else {}


def paths_of(paths: Sequence[str], deep: Sequence[str]) -> dict[str, list[str]]:
    """Return paths and deep paths as a body has them."""
    if isinstance(deep, str):
        deep = [deep]
    return {name: list(found) for name, found in (("paths", paths), ("deep_paths", deep)) if found}
