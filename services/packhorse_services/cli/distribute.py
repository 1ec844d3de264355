"""`packhorse distribute`: one request, and if wanted the wait for what becomes of it."""

import enum
import math
import time
import uuid
from collections.abc import Mapping
from typing import Any

from packhorse_services.cli import output, rooms
from packhorse_services.cli.api import Api, CommandFailed, Exit, NoAnswer
from packhorse_services.cli.connection import Connection

BULK_USAGE = (
    "--bulk goes with --deep and one path, and with no other option than --id; "
    "packhorse pipeline bulk has more"
)
_POLL_S = 0.25
_LOOK_S = 2
"""How long one request waits: a failure at one subscriber is told before the others are done."""

_FAILED = ("REMOVED", "REMOVED_FAILED")
_OPEN = ("QUEUED", "RETRYING")


class ActionName(enum.StrEnum):
    """What `--action` takes."""

    ADD = "add"
    DELETE = "delete"
    INVALIDATE = "invalidate"
    TEST = "test"


def request(publisher: Api, body: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
    """Send the request and return the answer.

    It carries an idempotency key, so that sending it again can't publish twice (R5).
    """
    key = checked_key(key)
    try:
        answer: dict[str, Any] = publisher.post("/distribute", body, {"Idempotency-Key": key})
    except NoAnswer as error:
        raise CommandFailed(
            f"{error}\nNobody knows whether it was accepted. Repeat the command with --key {key}: "
            "then it is distributed once.",
            error.code,
        ) from error
    return answer


def in_bulk(connection: Connection, path: str, bulk_id: str | None) -> int:
    """Let the pipeline distribute a subtree as many packages, and return its exit code.

    Raises `CommandFailed` where there is no pipeline.
    """
    token = connection.token()
    # By the environment, for anybody may read the arguments of a process.
    settings = {"PACKHORSE_SERVER": connection.publisher_url(), "PACKHORSE_TOKEN": token or ""}
    arguments = ["bulk", "--deep", path, *(["--id", bulk_id] if bulk_id else [])]
    return rooms.pipeline(connection, arguments, settings=settings)


def checked_key(key: str | None) -> str:
    """Return the key, or a new one where none was given. Raises `CommandFailed` for an empty one.

    An empty variable in a script would otherwise make each repetition a distribution of its own.
    """
    if key is not None and not key.strip():
        raise CommandFailed("--key is empty; name a key, or leave it out", Exit.USAGE)
    return str(uuid.uuid4()) if key is None else key


def wait(publisher: Api, distribution_id: str, timeout: float) -> None:
    """Return when every live subscriber has imported it.

    Raises `CommandFailed`: with `TIMEOUT` when that takes too long, `FAILED` when one gave up.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = max(0, min(_LOOK_S, math.ceil(deadline - time.monotonic())))
        found = publisher.get(f"/distributions/{distribution_id}?wait={left}")
        failed = [one for one in found["subscribers"] if one["state"] in _FAILED]
        if failed:
            raise CommandFailed(
                "\n".join(f"{one['subscriber']}: {one['state']} {one['reason']}" for one in failed)
            )
        if found["state"] == "DISTRIBUTED":
            _tell_away(found)
            return
        if time.monotonic() > deadline:
            raise CommandFailed(f"not everywhere after {timeout:g} s: {_open(found)}", Exit.TIMEOUT)
        time.sleep(_POLL_S)


def _tell_away(found: Mapping[str, Any]) -> None:
    """Name those who were not waited for."""
    for one in found["subscribers"]:
        if one["stale"] and one["state"] in _OPEN:
            output.tell(f"{one['subscriber']} is silent; it gets the package when it is back")


def _open(found: Mapping[str, Any]) -> str:
    """Say which subscribers have it still before them, and why."""
    waiting = [one for one in found["subscribers"] if one["state"] in _OPEN]
    if not waiting:
        return f"the distribution is {found['state']}"
    return "; ".join(_told(one) for one in sorted(waiting, key=lambda one: bool(one["stale"])))


def _told(one: Mapping[str, Any]) -> str:
    away = "(STALE, not waited for)" if one["stale"] else ""
    return " ".join(part for part in (one["subscriber"], one["state"], away, one["reason"]) if part)


def tell_dry_run(report: Mapping[str, Any]) -> None:
    """Print what a request would publish."""
    output.line(f"nodes        {report['nodes']}")
    output.line(f"content      {report['content_bytes']} bytes")
    output.line(f"body         {report['body_bytes']} bytes, {report['body']}")
    for target in report["subscribers"]:
        length = "unknown" if target["length"] is None else target["length"]
        output.line(f"{target['subscriber']:<12} {target['state']}, {length} packages before it")
