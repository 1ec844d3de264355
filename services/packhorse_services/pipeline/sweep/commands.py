"""`packhorse-pipeline mark` and `sweep`."""

import json
import re
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.pieces import cores
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.sweep import marking, sweeping
from packhorse_services.pipeline.sweep.report import SUMMARY, MarkSummary, Totals
from packhorse_services.pipeline.sweep.stores import Stores, stores_of

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]
GoneOption = Annotated[
    list[str] | None,
    typer.Option("--gone", help="A subscriber that is gone for good; may be repeated."),
]
_MARK_ID = re.compile(r"mark-[0-9]{1,16}-[0-9a-f]{8}")


def mark_command(
    gone: GoneOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the blobs that nobody refers to, write a report, and delete nothing."""
    settings = loaded(Settings)
    location = Location.parse(settings.tables_url)
    with stores_of(settings) as stores:
        _report_unheard_of(stores, gone)
        mark_id = marking.new_mark_id(stores.now_ms())
        with running_spark(settings, location, "mark") as spark:
            from packhorse_services.pipeline.sweep.spark_report import SparkReport

            summary = marking.mark(
                SparkReport(spark, location, mark_id),
                stores,
                mark_id,
                gone=gone or (),
                parts=_parts(spark),
            )
    _report(summary, "unused", summary.unused, as_json=as_json)


def sweep_command(
    mark_id: Annotated[str, typer.Option("--mark", help="The id that mark has printed.")],
    gone: GoneOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look again, remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what a mark has found, if nobody refers to it now either."""
    if _MARK_ID.fullmatch(mark_id) is None:
        raise TaskRefused(f"{mark_id[:80]!r} is no id of a mark")
    settings = loaded(Settings)
    location = Location.parse(settings.tables_url)
    with stores_of(settings) as stores:
        _report_unheard_of(stores, gone)
        from packhorse_services.pipeline.sweep.spark_report import SparkReport, last_summary

        # Whoever comes too early or late need not wait for a session to be told.
        before = last_summary(location, mark_id)
        sweeping.sweepable(before, stores, sweeping.PATIENCE)
        with running_spark(settings, location, "sweep") as spark:
            summary, going = sweeping.sweep(
                SparkReport(spark, location, mark_id),
                stores,
                gone=gone or (),
                dry_run=dry_run,
                parts=_parts(spark),
            )
    _report(summary, "would_remove" if dry_run else "removed", going, as_json=as_json)


def _report_unheard_of(stores: Stores, gone: list[str] | None) -> None:
    """Name those that --gone names for nothing; the author may also have forgotten them since."""
    unheard_of = stores.unheard_of(gone) if gone else []
    if unheard_of:
        typer.echo(
            f"--gone {', '.join(unheard_of)}: the author knows no such subscriber; correct the "
            "name, or leave it out",
            err=True,
        )


def _parts(spark: SparkSession) -> int:
    return cores(spark) * 4


def _report(summary: MarkSummary, what: str, totals: Totals, *, as_json: bool) -> None:
    if as_json:
        shown = {"binaries": totals.binaries, "packages": totals.packages}
        counts = {kind: {"count": one.count, "bytes": one.bytes} for kind, one in shown.items()}
        typer.echo(json.dumps({**SUMMARY.dump_python(summary, mode="json"), what: counts}))
        return
    typer.echo(summary.id)
    words = what.replace("_", " ")
    for kind, one in (("binaries", totals.binaries), ("packages", totals.packages)):
        typer.echo(f"{words}: {one.count} {kind}, {one.bytes} bytes", err=True)
    if summary.unreadable:
        typer.echo(
            f"kept: {summary.unreadable} blobs among the packages that are none, or damaged; look "
            f"at them and remove them yourself: {', '.join(summary.unreadable_keys)}",
            err=True,
        )
