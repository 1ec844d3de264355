"""`packhorse-pipeline bulk`: its options, what it prints, and its exit codes."""

import json
import re
import secrets
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from packhorse.content.node import check_path
from packhorse.runtime import logs
from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.bulk.state import Export
from packhorse_services.pipeline.engine.databases import AUTHOR_SETTING, require_url
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,89}")


def _bytes(text: str) -> int:
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError as error:
        raise typer.BadParameter(f"{text!r} is no size; say it as 64MiB") from error


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is distributed, in packages of which size."""

    deep: Annotated[
        str | None, typer.Option(help="The path to distribute, with all that is below it.")
    ] = None
    bulk_id: Annotated[
        str | None, typer.Option("--id", help="Its name; the same one goes on where it ended.")
    ] = None
    part_nodes: Annotated[int, typer.Option(min=1, help="Most nodes of a package.")] = 20_000
    part_bytes: Annotated[
        int,
        typer.Option(
            parser=_bytes, metavar="SIZE", help="Most bytes of a package, as Postgres stores them."
        ),
    ] = "64MiB"  # type: ignore[assignment]  # the parser takes it


@with_options
def bulk(
    *,
    chosen: ExportOptions,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Let no further part of --id go out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Distribute a subtree as many packages, exported in parallel from one snapshot.

    Prints its id once it begins; with that it goes on after an interruption.
    """
    settings = loaded(Settings)
    _quiet(settings)
    if chosen.bulk_id is not None and not _ID.fullmatch(chosen.bulk_id):
        raise TaskRefused("--id is up to 90 letters, digits, dots, dashes and underscores")
    if cancel:
        _cancel(settings, chosen.bulk_id, chosen.deep)
        return
    if chosen.deep is None:
        raise TaskRefused("name the path to distribute with --deep")
    export = _export(
        settings, check_path(chosen.deep), chosen.bulk_id, chosen.part_nodes, chosen.part_bytes
    )
    _distribute(settings, export, as_json=as_json)


def _export(
    settings: Settings, deep: str, bulk_id: str | None, part_nodes: int, part_bytes: int
) -> Export:
    settings.require("database_url", "blobs_url")
    require_url(settings.author_url, AUTHOR_SETTING)
    return Export(
        bulk_id or default_id(deep),
        deep,
        settings.author_url,
        settings.blobs_url,
        part_nodes,
        part_bytes,
    )


def default_id(deep: str) -> str:
    """Return an id that nobody has: what the path is called, the time, and chance."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", deep.rpartition("/")[2])[:40].strip("-") or "all"
    return f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _distribute(settings: Settings, export: Export, *, as_json: bool) -> None:
    from packhorse_services.pipeline.bulk.run import distribute

    def begins() -> None:
        if not as_json:
            _print(export.bulk_id)
        _say(f"bulk distribution {export.bulk_id}; after an interruption go on with --id")

    done = distribute(settings, export, begins)
    if as_json:
        _print(json.dumps({"id": export.bulk_id, "deep_path": export.deep_path, **asdict(done)}))
    again = f", {done.exported_again} exports again" if done.exported_again else ""
    earlier = f", {done.earlier} had been sent before" if done.earlier else ""
    _say(f"{done.sent} parts sent{earlier}{again}; {done.nodes} nodes in {done.seconds:.1f} s")


def _cancel(settings: Settings, bulk_id: str | None, deep: str | None) -> None:
    from packhorse_services.pipeline.bulk.cancelling import cancel
    from packhorse_services.pipeline.bulk.state import BulkState

    if bulk_id is None:
        raise TaskRefused("name what to cancel with --id")
    state = BulkState(Location.parse(settings.tables_url), bulk_id)
    _say(cancel(state, bulk_id, deep, settings.publisher_url, settings.publisher_bearer))


def _quiet(settings: Settings) -> None:
    logs.configure("console" if sys.stderr.isatty() else settings.log_format, settings.log_level)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"bulk: {text}\n")
    sys.stderr.flush()
