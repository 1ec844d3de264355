"""`packhorse distribute`: one request, and if wanted the wait for what becomes of it.

With `--from-file` it is as many requests as the file has lines, with `--bulk` one by Spark.
"""

import enum
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from packhorse.client.blocking import Client
from packhorse.client.calls import distributing
from packhorse.client.errors import NotInTime
from packhorse.runtime.command_options import with_options
from packhorse_services.cli import service_commands
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import Key, Timeout, WaitForAll
from packhorse_services.cli.distribute import replay

BULK_USAGE = (
    "--bulk goes with --deep and one path, and with no other option than --id; "
    "packhorse pipeline bulk has more"
)
_OPEN = ("QUEUED", "RETRYING")


class ActionName(enum.StrEnum):
    """What `--action` takes."""

    ADD = "add"
    DELETE = "delete"
    INVALIDATE = "invalidate"
    TEST = "test"


# What is distributed, and how.
Paths = Annotated[list[str] | None, typer.Argument(help="Nodes of the author.")]
Deep = Annotated[bool, typer.Option("--deep", help="With all that is below them.")]
Action = Annotated[ActionName, typer.Option(case_sensitive=False, help="What subscribers do.")]
At = Annotated[
    str | None,
    typer.Option(help="Later: a date and time with a time zone, such as 2026-12-24T18:00:00Z."),
]
To = Annotated[
    list[str] | None, typer.Option(help="For this subscriber alone; may be repeated. Else: all.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report without publishing.")]

# A file of requests.
FromFile = Annotated[
    str | None,
    typer.Option(
        help="Replay a file: each line is a path, or JSON with action, paths and deep_paths; "
        "- reads stdin."
    ),
]
Producer = Annotated[str | None, typer.Option(help="Name of the source; used to resume the file.")]
Batch = Annotated[
    int,
    typer.Option(
        "--batch", min=1, max=replay.MAX_BATCH, help="How many lines of the file one request takes."
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Go on behind a line that is refused.")
]

# A large subtree.
Bulk = Annotated[
    bool, typer.Option("--bulk", help="In many packages, exported in parallel with Spark.")
]
BulkId = Annotated[
    str | None, typer.Option("--id", help="With --bulk: go on with what has this name.")
]


@dataclass(frozen=True, kw_only=True)
class DistributeOptions:
    """What goes out, how, and whether the command waits for it."""

    deep: Deep = False
    action: Action = ActionName.ADD
    at: At = None
    to: To = None
    dry_run: DryRun = False
    wait: WaitForAll = False
    timeout: Timeout = 60.0
    key: Key = None
    from_file: FromFile = None
    producer: Producer = None
    keep_going: KeepGoing = False
    batch: Batch = replay.BATCH
    bulk: Bulk = False
    bulk_id: BulkId = None

    def is_one_request(self) -> bool:
        """Return whether they say what only one request by itself can be."""
        said = any(one is not None for one in (self.key, self.at, self.to))
        return self.dry_run or self.wait or said


@with_options
def distribute(context: typer.Context, *, paths: Paths = None, options: DistributeOptions) -> None:
    """Distribute nodes to all subscribers and print the distribution's id, or replay a file."""
    connection = context.ensure_object(Connection)
    by_file = options.from_file is not None or options.producer is not None
    if options.bulk or options.bulk_id is not None:
        if not options.bulk or by_file or options.keep_going:
            raise CommandFailed(BULK_USAGE, Exit.USAGE)
        _in_bulk(connection, paths or [], options)
    if by_file:
        _replay(connection, paths or [], options)
    else:
        _distribute(connection, paths or [], options)


def _in_bulk(connection: Connection, paths: list[str], options: DistributeOptions) -> NoReturn:
    """Become the pipeline's program, which distributes a subtree as many packages.

    Raises `CommandFailed` where there is no pipeline.
    """
    adds = options.action is ActionName.ADD and not options.is_one_request()
    if not adds or not options.deep or len(paths) != 1:
        raise CommandFailed(BULK_USAGE, Exit.USAGE)
    token = connection.token()
    # By the environment, for anybody may read the arguments of a process.
    settings = {
        "PACKHORSE_PUBLISHER_URL": connection.publisher_url(),
        "PACKHORSE_PUBLISHER_TOKEN": token or "",
    }
    named = ["--id", options.bulk_id] if options.bulk_id else []
    service_commands.pipeline(connection, ["bulk", "--deep", *paths, *named], settings)


def _replay(connection: Connection, paths: list[str], options: DistributeOptions) -> None:
    source, producer = options.from_file, options.producer
    if not source or not producer or paths or options.is_one_request():
        raise CommandFailed(replay.USAGE, Exit.USAGE)
    action = options.action.value.upper()
    replayed = replay.ReplayRequest(
        source, producer, action, options.deep, options.keep_going, options.batch
    )
    with connection.publisher() as publisher:
        replay.replay(publisher, replayed)


def _distribute(connection: Connection, paths: list[str], options: DistributeOptions) -> None:
    if not paths and options.action is not ActionName.TEST:
        raise CommandFailed("name at least one path, or --from-file FILE", Exit.USAGE)
    named = {"deep_paths" if options.deep else "paths": paths}
    at = {} if options.at is None or options.dry_run else {"at": options.at}
    to = {"targets": options.to} if options.to else {}
    body = {"action": options.action.value.upper(), **named, **at, **to}
    with connection.publisher() as publisher:
        if options.dry_run:
            report_dry_run(publisher.run(distributing.dry_run_of(body)))
            return
        accepted = publisher.run(distributing.request(body, options.key, awaited=options.wait))
        output.line(accepted["id"])
        if options.wait:
            await_distributed(publisher, accepted["id"], options.timeout)


def await_distributed(publisher: Client, distribution_id: str, timeout: float) -> None:
    """Return when every live subscriber has imported it. Raises as `await_all_distributed`."""
    await_all_distributed(publisher, [distribution_id], timeout)


def await_all_distributed(publisher: Client, ids: Iterable[str], timeout: float) -> None:
    """Return when every live subscriber has imported all of them, within one timeout.

    Raises `CommandFailed`: with `TIMEOUT` when that takes too long, `FAILED` when one will not.
    """
    deadline = time.monotonic() + timeout
    for one in ids:
        _await_until(publisher, one, deadline, timeout)


def _await_until(publisher: Client, distribution_id: str, deadline: float, timeout: float) -> None:
    try:
        found = publisher.wait_for(distribution_id, max(0.0, deadline - time.monotonic()))
    except NotInTime as error:
        text = f"not everywhere after {timeout:g} s: {_open(error.document)}"
        raise CommandFailed(text, Exit.TIMEOUT) from error
    if found["failed"]:
        raise CommandFailed("\n".join(f"{name}: {why}" for name, why in found["failed"].items()))
    _report_others(found)


def _report_others(found: Mapping[str, Any]) -> None:
    """Name those who do not have it and were not waited for; not those that it is not for."""
    for one in distributing.those_it_is_for(found):
        name = one["subscriber"]
        if one["stale"] and one["state"] in _OPEN:
            output.report(f"{name} is silent; it gets the package when it is back")
        elif one["state"] == "SKIPPED":
            output.report(f"{name} did not import it: {one['reason']}")
    if found["state"] != "DISTRIBUTED":
        output.report(f"the distribution is {found['state']}")


def _open(found: Mapping[str, Any]) -> str:
    """Say which subscribers have it still before them, and why."""
    waiting = [one for one in distributing.those_it_is_for(found) if one["state"] in _OPEN]
    if not waiting:
        return f"the distribution is {found['state']}"
    return "; ".join(_as_text(one) for one in sorted(waiting, key=lambda one: bool(one["stale"])))


def _as_text(one: Mapping[str, Any]) -> str:
    away = "(STALE, not waited for)" if one["stale"] else ""
    return " ".join(part for part in (one["subscriber"], one["state"], away, one["reason"]) if part)


def report_dry_run(report: Mapping[str, Any]) -> None:
    """Print what a request would publish."""
    output.line(f"nodes        {report['nodes']}")
    output.line(f"content      {report['content_bytes']} bytes")
    output.line(f"body         {report['body_bytes']} bytes, {report['body']}")
    for target in report["subscribers"]:
        length = "unknown" if target["length"] is None else target["length"]
        output.line(f"{target['subscriber']:<12} {target['state']}, {length} packages before it")
