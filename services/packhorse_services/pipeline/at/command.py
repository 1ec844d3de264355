"""`packhorse-pipeline at`."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import psycopg
import typer

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.snapshot.command import AgentOption, LeaveOutOption, require_blobs


def at(
    *,
    path: Annotated[str, typer.Option(help="The node to show, with all below it.")],
    offset: Annotated[int | None, typer.Option(min=0, help="After the package there.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Or at a time, such as 2026-05-01T12:00:00Z; at most the newest package's."
        ),
    ] = None,
    agent: AgentOption = None,
    leave_out: LeaveOutOption = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Put it back into the author's repository.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Restore nodes whose binaries are gone, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each node as one line of JSON.")
    ] = False,
) -> None:
    """Show a subtree as it was at a point of the history, or put it back."""
    if (offset is None) == (time is None):
        raise typer.BadParameter("give either --offset or --time")
    settings = loaded(Settings)
    blobs_url, location = require_blobs(settings), Location.parse(settings.tables_url)
    if restore and settings.database_url is None:
        raise TaskRefused("set PACKHORSE_DATABASE_URL to the author's database to restore into it")
    from packhorse_services.pipeline.at.task import Point, subtree_at
    from packhorse_services.pipeline.session import spark_session

    agents, left_out = tuple(sorted(set(agent or ()))), tuple(leave_out or ())
    when = None if time is None else moment(time)
    point = Point(path, offset, when, agents, left_out)
    spark = spark_session(settings, location, "at")
    try:
        with subtree_at(spark, location, blobs_url, point) as (content, _):
            if restore:
                _restore(content, path, settings, force=force, as_json=as_json)
            else:
                for row in content.toLocalIterator(prefetchPartitions=False):
                    typer.echo(_shown(row, as_json=as_json))
    finally:
        spark.stop()


def moment(text: str) -> datetime:
    """Return the time that ISO 8601 text says; UTC when it names no zone.

    Raises `TaskRefused` for anything else.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise TaskRefused(f"{text!r} is no time; say it as 2026-05-01T12:00:00Z") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _restore(content: Any, path: str, settings: Settings, *, force: bool, as_json: bool) -> None:
    from packhorse_services.pipeline.at.restore import refused, require_binaries, restore

    if not force:
        require_binaries(content, settings.blobs_url)
    url = settings.database_url
    try:
        nodes = restore(content, path, url.get_secret_value() if url else "")
    except psycopg.Error as error:
        raise refused(error) from error
    advice = f"packhorse distribute --deep {path}"
    if as_json:
        typer.echo(json.dumps({"path": path, "nodes": nodes, "distribute": advice}))
    else:
        typer.echo(f"restored {nodes} nodes at {path}; send them to all subscribers: {advice}")


def _shown(row: Any, *, as_json: bool) -> str:
    if not as_json:
        return f"{row.path}  {row.type}  offset {row.offset}"
    node = {
        "path": row.path,
        "type": row.type,
        "properties": json.loads(row.properties),
        "binaries": json.loads(row.binaries),
        "offset": row.offset,
        "package_id": row.package_id,
    }
    return json.dumps(node, ensure_ascii=False)
