"""`packhorse-pipeline audit`."""

import json
import secrets
import sys
from typing import Annotated

import typer

from packhorse.clock import SystemClock
from packhorse.content.node import ROOT, check_path
from packhorse.errors import Transient
from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.audit.outcome import Audited, ExitCode, exit_code
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.settings import Settings


def audit_command(
    *,
    subscriber: Annotated[
        list[str] | None,
        typer.Option("--subscriber", help="Only this one; may be repeated."),
    ] = None,
    path: Annotated[str, typer.Option("--path", help="Only this node and all below.")] = ROOT,
    since_start: Annotated[
        bool,
        typer.Option("--since-start", help="Of lanes that began late, expect only what followed."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Paths shown of each one.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one line of JSON.")
    ] = False,
) -> None:
    """Compare subscribers with the archive, each at its own offset, without locking them.

    Exits with 0 when all are equal, 1 when one differs, 3 when one could not be compared.
    """
    settings = loaded(Settings)
    databases = _chosen(settings, subscriber or [])
    run = f"audit-{SystemClock().wall_ms()}-{secrets.token_hex(4)}"
    try:
        audited = _audited(
            settings, databases, run=run, top=check_path(path), since_start=since_start, limit=limit
        )
    except Transient as error:
        sys.stderr.write(f"the audit failed: {error}\n")
        raise typer.Exit(ExitCode.UNKNOWN) from None
    if as_json:
        shown = {"run": run, "subscribers": [one.as_json() for one in audited]}
        typer.echo(json.dumps(shown))
    else:
        typer.echo(f"table audit/{run}")
        for line in (line for one in audited for line in one.lines()):
            typer.echo(line)
    raise typer.Exit(exit_code(audited))


def _chosen(settings: Settings, wanted: list[str]) -> dict[str, str]:
    known = {n: url.get_secret_value() for n, url in settings.subscriber_databases.items()}
    unknown = sorted(set(wanted) - known.keys())
    if unknown:
        raise TaskRefused(f"PACKHORSE_SUBSCRIBER_DATABASES names no {unknown[0]!r}")
    if not known:
        raise TaskRefused("there is no subscriber; set PACKHORSE_SUBSCRIBER_DATABASES")
    if not settings.blobs_url:
        raise TaskRefused("PACKHORSE_BLOBS_URL is missing; snapshots are there")
    return {name: url for name, url in known.items() if not wanted or name in wanted}


def _audited(
    settings: Settings,
    databases: dict[str, str],
    *,
    run: str,
    top: str,
    since_start: bool,
    limit: int,
) -> list[Audited]:
    from packhorse_services.pipeline.audit.expected import Expectations
    from packhorse_services.pipeline.audit.task import Audit
    from packhorse_services.pipeline.session import spark_session

    location = Location.parse(settings.tables_url)
    spark = spark_session(settings, location, "audit")
    expectations = Expectations(spark, location, settings.blobs_url, since_start=since_start)
    try:
        return Audit(spark, location, run, expectations, top, limit).all(databases)
    finally:
        expectations.close()
        spark.stop()
