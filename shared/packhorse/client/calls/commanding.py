"""Commands to subscribers: each is answered at once, and waited for when that is asked."""

from typing import Any, Literal

from packhorse.client.errors import NotInTime, Rejected
from packhorse.client.exchange import (
    Document,
    Operation,
    Pause,
    Request,
    deadline_in,
    given,
    listed,
    requested,
    require_seconds,
    segment,
    with_query,
)

_POLL_S = 0.25
_PAGE = 1_000
_ANNOUNCED = {"pause": "PAUSED", "stop": "STOPPED"}

Control = Literal["pause", "resume", "stop"]


def clear(
    subscriber: str,
    *,
    up_to: int | None = None,
    if_match: str | None = None,
    wait: float | None = None,
) -> Operation[Document]:
    """Let an editable subscriber remove what waits, up to an offset, and return the command.

    With `if_match` only what `queue_tag` has named. With `wait` it is the command once it is
    applied: `removed` says how many packages were removed. Raises as `command_ended` does.
    """
    headers = {} if if_match is None else {"If-Match": if_match}
    clearing = Request(
        "POST",
        f"/queues/{segment(subscriber)}/clear",
        body=given(up_to_offset=up_to),
        headers=headers,
        repeatable=up_to is not None or if_match is not None,
    )
    return (yield from _commanded(clearing, wait))


def clear_bound(subscriber: str, *, up_to: int | None = None) -> Operation[Document]:
    """Return what a clear would remove now: `packages`, up to `up_to_offset`.

    It is exact where `packages_at_most` is the same.
    """
    path = f"/queues/{segment(subscriber)}/clear"
    return (yield from requested(Request("GET", with_query(path, up_to_offset=up_to))))


def pause(subscriber: str, *, wait: float | None = None) -> Operation[Document]:
    """Let a subscriber import nothing until it is resumed; what it has begun it ends."""
    return (yield from _control(subscriber, "pause", wait))


def resume(subscriber: str, *, wait: float | None = None) -> Operation[Document]:
    """Let a subscriber that was paused or stopped go on; what failed is tried at once."""
    return (yield from _control(subscriber, "resume", wait))


def stop(subscriber: str, *, wait: float | None = None) -> Operation[Document]:
    """Let a subscriber import and read nothing; only then its offset may be changed."""
    return (yield from _control(subscriber, "stop", wait))


def retry(subscriber: str, *, wait: float | None = None) -> Operation[Document]:
    """Let a subscriber try the package that failed again at once; its back-off begins anew."""
    path = f"/subscribers/{segment(subscriber)}/retry"
    return (yield from _commanded(Request("POST", path, body={}, repeatable=True), wait))


def reset(subscriber: str, offset: int, *, wait: float | None = None) -> Operation[Document]:
    """Move a stopped subscriber to another offset, where it goes on once it is resumed.

    Raises `Conflict` for one that is not stopped.
    """
    moving = Request(
        "PATCH",
        f"/subscribers/{segment(subscriber)}/offset",
        body={"offset": offset},
        headers={"Content-Type": "application/merge-patch+json"},
        repeatable=True,
    )
    return (yield from _commanded(moving, wait))


def command(command_id: str) -> Operation[Document]:
    """Return a command: its `state` is ISSUED, SENT, SEEN, APPLIED or REJECTED."""
    return (yield from requested(Request("GET", f"/commands/{segment(command_id)}")))


def commands(
    *, subscriber: str | None = None, state: str | None = None, limit: int = 100
) -> Operation[list[Document]]:
    """Return what operators did in the last 30 days, newest first."""
    path = with_query("/commands", subscriber=subscriber, state=state)
    return (yield from listed(path, "commands", limit, _PAGE, "publisher"))


def command_ended(command_id: str, seconds: float = 60.0) -> Operation[Document]:
    """Return a command once its subscriber has applied it.

    Raises `Rejected` with the subscriber's reason, and `NotInTime`; it stays in force then.
    """
    deadline = yield from deadline_in(seconds)
    while True:
        found = yield from _awaited(f"/commands/{segment(command_id)}", deadline)
        if found["state"] == "APPLIED":
            return Document(found)
        if found["state"] == "REJECTED":
            raise Rejected(f"{found['subscriber']} rejected it: {found['reason']}")
        now: float = yield Pause(_POLL_S)
        if now > deadline:
            raise NotInTime(
                f"not done after {seconds:g} s, the command is {found['state']}; it stays in force",
                found,
            )


def announced(subscriber: str, action: Control, seconds: float = 60.0) -> Operation[None]:
    """Return once a subscriber announces the state it was sent to: a reset is refused before.

    Raises `NotInTime`.
    """
    path = f"/subscribers/{segment(subscriber)}"
    deadline = yield from deadline_in(seconds)
    while True:
        found = yield from _awaited(path, deadline)
        standing = found["state"] if found["state"] in _ANNOUNCED.values() else None
        if standing == _ANNOUNCED.get(action):
            return
        now: float = yield Pause(_POLL_S)
        if now > deadline:
            raise NotInTime(f"the subscriber says {found['state']}; look again later", found)


def _control(subscriber: str, action: Control, wait: float | None) -> Operation[Document]:
    path = f"/subscribers/{segment(subscriber)}/{action}"
    deadline = yield from deadline_in(wait)
    command = yield from _commanded(Request("PUT", path), wait)
    if wait is not None:
        yield from announced(subscriber, action, deadline - (yield Pause()))
    return command


def _commanded(request: Request, wait: float | None) -> Operation[Document]:
    require_seconds(wait)
    command = yield from requested(request)
    if wait is None:
        return command
    return Document({**command, **(yield from command_ended(command["command_id"], wait))})


def _awaited(path: str, deadline: float) -> Operation[Any]:
    """Ask until `deadline` while the service is away: nothing is lost by that."""
    now: float = yield Pause()
    return (yield from requested(Request("GET", path, patience_s=max(0.0, deadline - now))))
