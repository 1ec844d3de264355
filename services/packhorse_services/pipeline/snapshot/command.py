"""`packhorse-pipeline snapshot`."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.archive_location import archive_at

if TYPE_CHECKING:
    from packhorse_services.pipeline.snapshot.task import Made

AgentOption = Annotated[
    list[str] | None,
    typer.Option("--agent", help="Only this publisher agent's packages; may be repeated."),
]
LeaveOutOption = Annotated[
    list[int] | None,
    typer.Option("--leave-out", min=0, help="Offset of a package nobody could import; repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    """What the snapshot has, and how many stay."""

    offset: Annotated[
        int | None, typer.Option(min=0, help="The last package; without it, the newest archived.")
    ] = None
    agent: AgentOption = None
    subscriber: Annotated[str, typer.Option(help="Leave out what this subscriber has removed.")] = (
        ""
    )
    keep: Annotated[
        int | None, typer.Option(min=1, help="How many snapshots like it stay, this one included.")
    ] = None
    leave_out: LeaveOutOption = None


@with_options
def snapshot(
    *,
    options: SnapshotOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one line of JSON.")
    ] = False,
) -> None:
    """Make a snapshot of the content in the blob store, for subscribers to begin with."""
    settings = loaded(Settings)
    settings.require("blobs_url")
    location = archive_at(settings.tables_url, only_read=True)
    from packhorse_services.pipeline.engine.session import running_spark
    from packhorse_services.pipeline.snapshot.task import SnapshotRequest, make_snapshot

    request = SnapshotRequest(
        options.offset,
        tuple(sorted(set(options.agent or ()))),
        options.subscriber,
        tuple(options.leave_out or ()),
        options.keep,
    )
    with running_spark(settings, location, "snapshot") as spark:
        made = make_snapshot(spark, location, settings.topics.package, settings.blobs_url, request)
    result = _result(made)
    typer.echo(json.dumps(result) if as_json else _said(result))


def _result(made: "Made") -> dict[str, object]:
    return {
        "snapshot": made.snapshot.id,
        "offset": made.snapshot.offset,
        "nodes": made.snapshot.nodes,
        "parts": len(made.snapshot.parts),
        "new": made.is_new,
        "base_offset": made.base.offset if made.base else None,
        "pruned": made.pruned,
        "leftovers_removed": made.leftovers,
    }


def _said(result: dict[str, object]) -> str:
    made = "made" if result["new"] else "is there already"
    base = result["base_offset"]
    since = "" if base is None else f", from the one at {base}"
    return (
        f"snapshot {result['snapshot']} {made}: offset {result['offset']}, {result['nodes']} nodes "
        f"in {result['parts']} parts{since}; removed {result['pruned']} older snapshots and "
        f"{result['leftovers_removed']} leftover files"
    )
