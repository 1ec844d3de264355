"""Queues, subscribers, and what subscribers gave up on."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from packhorse.client.calls.distributing import checked_key
from packhorse.client.errors import Misused
from packhorse.client.exchange import (
    Answer,
    Document,
    Operation,
    Request,
    done,
    gathered,
    given,
    listed,
    repeated_by_key,
    requested,
    segment,
    with_query,
)
from packhorse.packages.path_filter import PathFilter

_PAGE = 1_000


def queues() -> Operation[list[Document]]:
    """Return the queue of each subscriber: `subscriber`, `state`, `length`, `head`, `reason`."""
    found: list[Document] = (yield from requested(Request("GET", "/queues")))["queues"]
    return found


def queue(
    subscriber: str,
    *,
    path_prefix: str | None = None,
    action: str | None = None,
    limit: int = 100,
    up_to: int | None = None,
) -> Operation[Document]:
    """Return a subscriber's queue with its first `entries`, oldest first.

    No page behind the offset `up_to` is read.
    """
    path = f"/queues/{segment(subscriber)}"
    url = with_query(path, **given(path_prefix=path_prefix, action=action))

    def enough(entries: list[Any]) -> bool:
        return up_to is not None and bool(entries) and entries[-1]["offset"] > up_to

    return (yield from gathered(url, "entries", limit, _PAGE, "publisher", enough=enough))


def queue_tag(subscriber: str) -> Operation[str]:
    """Return what names a queue as it is now, for `clear(…, if_match=…)`."""
    answer: Answer = yield Request("GET", f"/queues/{segment(subscriber)}?limit=1")
    return answer.headers.get("etag", "*")


def queue_history(subscriber: str, *, hours: int = 1, points: int = 60) -> Operation[Document]:
    """Return how a queue was: lists `lag_seconds`, `length` and `rate`, None where not known.

    Of each there is one in `step_seconds`, from `since` on.
    """
    path = f"/queues/{segment(subscriber)}/history"
    return (yield from requested(Request("GET", with_query(path, hours=hours, points=points))))


def points_of(history: Document) -> list[dict[str, Any]]:
    """Return the points of a history: `time`, `lag_seconds`, `length`, `rate`."""
    since, names = datetime.fromisoformat(history["since"]), ("lag_seconds", "length", "rate")
    return [
        {
            "time": _text(since + timedelta(seconds=number * history["step_seconds"])),
            **dict(zip(names, figures, strict=True)),
        }
        for number, figures in enumerate(zip(*(history[name] for name in names), strict=True))
    ]


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def subscribers() -> Operation[list[Document]]:
    """Return who announced itself within a day: `subscriber`, `state`, `offset`, `behind`."""
    found: list[Document] = (yield from requested(Request("GET", "/subscribers")))["subscribers"]
    return found


def subscriber(name: str) -> Operation[Document]:
    """Return one subscriber."""
    return (yield from requested(Request("GET", f"/subscribers/{segment(name)}")))


def errors(subscriber: str, *, limit: int = 100) -> Operation[list[Document]]:
    """Return the packages that a subscriber gave up on: `offset`, `paths`, `reason`."""
    path = f"/queues/{segment(subscriber)}/errors"
    return (yield from listed(path, "entries", limit, _PAGE, "publisher"))


def redistribute(
    subscriber: str, offset: int, *, again: bool = False, key: str | None = None
) -> Operation[Document]:
    """Distribute the paths of a package that was given up again, to whom it was for.

    Returns what was accepted. Each is distributed again once, unless `again`. Raises `Conflict`
    the second time, `NoAnswer` with the key when nobody knows whether it was accepted.
    """
    path = f"/queues/{segment(subscriber)}/errors/{offset}/redistribute"
    headers = {"Idempotency-Key": checked_key(key)}
    asked_path = with_query(path, again="true" if again else None)
    sent = Request("POST", asked_path, body={}, headers=headers, repeatable=True)
    return (yield from repeated_by_key(sent, "distributed"))


def redistribute_all(
    subscriber: str, *offsets: int, reason: str | None = None, again: bool = False
) -> Operation[Document]:
    """Distribute several packages again, by their offsets or all with a part of their `reason`.

    `again` goes with offsets. Returns what became of each, as `entries`, and whether there are
    `more`.
    """
    body = {**_meant(offsets, reason), "again": again}
    path = f"/queues/{segment(subscriber)}/errors/redistribute"
    return (yield from requested(Request("POST", path, body=body, repeatable=not again)))


def dismiss(subscriber: str, *offsets: int, reason: str | None = None) -> Operation[Document]:
    """Take packages off the error queue; return their `offsets`, and if there are `more`."""
    path = f"/queues/{segment(subscriber)}/errors/dismiss"
    body = _meant(offsets, reason)
    return (yield from requested(Request("POST", path, body=body, repeatable=True)))


def forget(subscriber: str) -> Operation[None]:
    """Forget a subscriber that is gone for good. Raises `Conflict` while it announces itself."""
    yield from done(Request("DELETE", f"/subscribers/{segment(subscriber)}"))


def _meant(offsets: tuple[int, ...], reason: str | None) -> dict[str, Any]:
    if not offsets and not reason:
        raise Misused("name offsets, or a part of the reason")
    return given(offsets=list(offsets) or None, reason=reason)


def filter_of(subscriber: Mapping[str, Any]) -> PathFilter:
    """Return the filter of a subscriber as a publisher tells of it."""
    return PathFilter(
        tuple(subscriber["include"]),
        tuple(subscriber["exclude"]),
        tuple(subscriber["map_paths"].items()),
        tuple(subscriber["exclude_properties"]),
    )
