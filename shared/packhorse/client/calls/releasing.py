"""Releases: sets of paths that go out together, at a moment or when they are told to."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from packhorse.client.calls.distributing import (
    Action,
    checked_key,
    moment_text,
    paths_of,
    targets_of,
)
from packhorse.client.exchange import (
    Document,
    Operation,
    Request,
    given,
    listed,
    repeated_by_key,
    requested,
    segment,
    with_query,
)

_PAGE = 1_000


def create_release(
    name: str,
    *paths: str,
    deep: Sequence[str] = (),
    action: Action = "ADD",
    at: datetime | str | None = None,
    to: Sequence[str] = (),
    key: str | None = None,
) -> Operation[Document]:
    """Plan a release, which goes out in one package or not at all; without `at` it is a DRAFT.

    With `to` it is for these subscribers alone.
    Every try has the same idempotency key, `key` or a new one. Raises `Conflict` when an open
    release has the name, `NoAnswer` when nobody knows whether it is there.
    """
    body = {"name": name, "action": action, **paths_of(paths, deep), **given(at=moment_text(at))}
    body |= targets_of(to)
    headers = {"Idempotency-Key": checked_key(key)}
    sent = Request("POST", "/releases", body=body, headers=headers, repeatable=True)
    return (yield from repeated_by_key(sent, "planned"))


def release(named: str) -> Operation[Document]:
    """Return a release by its id or name: `state`, `at`, `paths`, `package_id`, `reason`."""
    return (yield from requested(Request("GET", _path(named))))


def releases(*, state: str | None = None, limit: int = 100) -> Operation[list[Document]]:
    """Return releases by their moments, those without one last."""
    path = with_query("/releases", **given(state=state))
    return (yield from listed(path, "releases", limit, _PAGE, "publisher"))


def add_to_release(named: str, *paths: str, deep: Sequence[str] = ()) -> Operation[Document]:
    """Add nodes, and with `deep` all that is below, to a release that is not sent."""
    added = {f"add_{name}": found for name, found in paths_of(paths, deep).items()}
    return (yield from _changed(named, added))


def remove_from_release(named: str, *paths: str) -> Operation[Document]:
    """Take paths out of a release that is not sent. Raises `Invalid` for one that is not in it."""
    return (yield from _changed(named, {"remove_paths": list(paths)}, repeatable=False))


def reschedule_release(named: str, at: datetime | str | None) -> Operation[Document]:
    """Let a release go out at another moment; None: it is a DRAFT again.

    One that FAILED is tried again then. Raises `Conflict` when it is sent or cancelled.
    """
    return (yield from _changed(named, {"at": moment_text(at)}))


def send_release(named: str) -> Operation[Document]:
    """Let a release go out at once; `wait_for` its id says what becomes of it."""
    return (yield from _changed(named, {"at": "now"}))


def cancel_release(named: str) -> Operation[Document]:
    """Let a release not go out. Raises `Conflict` when it is sent."""
    return (yield from requested(Request("DELETE", _path(named), repeatable=True)))


def _changed(named: str, change: dict[str, Any], *, repeatable: bool = True) -> Operation[Document]:
    sent = Request("PATCH", _path(named), body=change, repeatable=repeatable)
    return (yield from requested(sent))


def _path(named: str) -> str:
    return f"/releases/{segment(named)}"
