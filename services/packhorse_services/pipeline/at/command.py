"""`packhorse-pipeline at`."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import orjson
import psycopg
import typer

from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import loaded
from packhorse.runtime.moments import moment_of
from packhorse_services.pipeline.engine.databases import AUTHOR_SETTING, require_url
from packhorse_services.pipeline.errors import NotThere
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.snapshot.command import AgentOption, LeaveOutOption
from packhorse_services.pipeline.storage.archive_location import archive_at


@dataclass(frozen=True, kw_only=True)
class PointOptions:
    """Which subtree, and at which point of the history."""

    path: Annotated[str, typer.Option(help="The node to show, with all below it.")]
    offset: Annotated[int | None, typer.Option(min=0, help="After the package there.")] = None
    time: Annotated[
        str | None,
        typer.Option(
            help="Or at a time, such as 2026-05-01T12:00:00Z; at most the newest package's."
        ),
    ] = None
    agent: AgentOption = None
    leave_out: LeaveOutOption = None


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """What is done with it."""

    restore: Annotated[
        bool, typer.Option("--restore", help="Put it back into the author's repository.")
    ] = False
    force: Annotated[
        bool, typer.Option("--force", help="Restore nodes whose binaries are gone, too.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each node as one line of JSON.")
    ] = False


@with_options
def at(*, chosen: PointOptions, how: RestoreOptions) -> None:
    """Show a subtree as it was at a point of the history, or put it back.

    Exits with 3 when nothing was there.
    """
    if (chosen.offset is None) == (chosen.time is None):
        raise typer.BadParameter("give either --offset or --time")
    when = None if chosen.time is None else _moment(chosen.time)
    settings = loaded(Settings)
    settings.require("blobs_url")
    location = archive_at(settings.tables_url, only_read=True)
    if how.restore:
        _require_author(settings)
    from packhorse_services.pipeline.at.task import Point, subtree_at
    from packhorse_services.pipeline.engine.session import running_spark

    agents, left_out = tuple(sorted(set(chosen.agent or ()))), tuple(chosen.leave_out or ())
    point = Point(chosen.path, chosen.offset, when, agents, left_out)
    with (
        running_spark(settings, location, "at") as spark,
        subtree_at(spark, location, settings.topics.package, settings.blobs_url, point) as found,
    ):
        if how.restore:
            _restore(found.nodes, chosen.path, settings, force=how.force, as_json=how.as_json)
        else:
            show(found, chosen.path, as_json=how.as_json)


def _moment(text: str) -> datetime:
    try:
        return moment_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"--time: {error}") from None


def _require_author(settings: Settings) -> None:
    from packhorse_services.pipeline.at.task import require_author

    settings.require("database_url")
    require_url(settings.author_url, AUTHOR_SETTING)
    require_author(settings.author_url)


def _restore(content: Any, path: str, settings: Settings, *, force: bool, as_json: bool) -> None:
    from packhorse_services.pipeline.at.task import OTHERWISE, refused, restore
    from packhorse_services.pipeline.history.content import require_binaries

    if not force:
        require_binaries(content, settings.blobs_url, otherwise=OTHERWISE)
    try:
        nodes = restore(content, path, settings.author_url)
    except psycopg.Error as error:
        raise refused(error) from error
    advice = f"packhorse distribute --deep {path}"
    if as_json:
        typer.echo(json.dumps({"path": path, "nodes": nodes, "distribute": advice}))
    else:
        typer.echo(f"restored {nodes} nodes at {path}; send them to all subscribers: {advice}")


def show(found: Any, path: str, *, as_json: bool) -> None:
    """Print the nodes. Raises `NotThere` when there is none."""
    base = None if found.base is None else found.base.id
    empty = True
    for row in found.nodes.toLocalIterator(prefetchPartitions=False):
        typer.echo(_shown(row, base, as_json=as_json))
        empty = False
    if empty:
        last = found.target.offset
        raise NotThere(f"nothing was at {path} or below it after the package at offset {last}")


def _shown(row: Any, base: str | None, *, as_json: bool) -> str:
    """Return a node as a line: of a package it has the offset, else the id of its snapshot."""
    came_with = None if row.package_id else base
    if not as_json:
        by = f"offset {row.offset}" if came_with is None else f"snapshot {came_with}"
        return f"{row.path}  {row.type}  {by}"
    node = {
        "path": row.path,
        "type": row.type,
        # As it is, but in one line: parsed, long numbers would come out as others.
        "properties": orjson.Fragment(row.properties.replace("\r", " ").replace("\n", " ")),
        "binaries": orjson.Fragment(row.binaries),
        "offset": row.offset,
        "package_id": row.package_id or None,
        "snapshot": came_with,
    }
    return orjson.dumps(node).decode()
