"""`packhorse report`: what the pipeline has measured, from its service or from the tables."""

import enum
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer

from packhorse.client.blocking import Client
from packhorse.client.exchange import with_query
from packhorse.runtime.command_options import with_options
from packhorse.runtime.whole_file import whole_file
from packhorse_services.cli import service_commands
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection, client_of
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.views import Format, View

Name = Literal["delivery", "failures", "slowest", "publishing"]


class Form(enum.StrEnum):
    """What `--format` takes."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


Begin = Annotated[
    str | None,
    typer.Option(
        "--from",
        show_default="24 hours before --to",
        help="The first hour: RFC 3339, such as 2026-11-21T10:00:00Z.",
    ),
]
End = Annotated[
    str | None, typer.Option("--to", show_default="now", help="The end of the last hour.")
]
Subscriber = Annotated[str | None, typer.Option(help="Of this one only.")]
Agent = Annotated[str | None, typer.Option(help="Of this publisher agent only.")]
Shape = Annotated[Form, typer.Option("--format", help="How to show it; html shows all reports.")]
Target = Annotated[
    Path | None, typer.Option("--output", dir_okay=False, help="Write it to this file.")
]
Service = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        envvar="PACKHORSE_PIPELINE_URL",
        show_default="none: the tables themselves are read",
        help="The URL of the pipeline's service.",
    ),
]


_SUBSCRIPTION = {"HOUR": "hour", "SUBSCRIBER": "subscriber", "AGENT": "publisher_agent"}
_VIEWS: Mapping[str, View] = {
    "delivery": View(
        rows="rows",
        name="subscriber",
        columns={
            **_SUBSCRIPTION,
            "DELIVERED": "delivered",
            "P50 MS": "latency_p50_ms",
            "P95 MS": "latency_p95_ms",
            "P99 MS": "latency_p99_ms",
            "FAILURES": "failures",
            "BACKLOG": "backlog_end",
            "BLOCKED MS": "blocked_ms",
        },
        wide={},
    ),
    "failures": View(
        rows="rows",
        name="reason",
        columns={**_SUBSCRIPTION, "COUNT": "count", "REASON": "reason"},
        wide={},
    ),
    "slowest": View(
        rows="rows",
        name="path",
        columns={**_SUBSCRIPTION, "RANK": "rank", "LATENCY MS": "latency_ms", "PATH": "path"},
        wide={},
    ),
    "publishing": View(
        rows="rows",
        name="publisher_agent",
        columns={
            "HOUR": "hour",
            "AGENT": "publisher_agent",
            "PACKAGES": "packages",
            "NODES": "nodes",
            "BYTES": "bytes",
            "P50 MS": "latency_p50_ms",
            "P95 MS": "latency_p95_ms",
            "P99 MS": "latency_p99_ms",
        },
        wide={},
    ),
}


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the report covers."""

    begin: Begin = None
    end: End = None
    subscriber: Subscriber = None
    agent: Agent = None

    def given(self) -> dict[str, str]:
        """Return what was given, as the query of the service."""
        requested = {"from": self.begin, "to": self.end}
        requested |= {"subscriber": self.subscriber, "agent": self.agent}
        return {key: value for key, value in requested.items() if value is not None}


@with_options
def report(
    context: typer.Context,
    *,
    name: Annotated[Name, typer.Argument(help="Which report.")],
    selected: ReportOptions,
    form: Shape = Form.TABLE,
    target: Target = None,
    service: Service = None,
) -> None:
    """Show what the pipeline has measured: delivery, failures, slowest paths, publishing."""
    given = selected.given()
    if form is Form.TABLE and target is not None:
        raise CommandFailed("--output needs --format json, csv or html", Exit.USAGE)
    connection = context.ensure_object(Connection)
    wanted = Form.JSON if form is Form.TABLE else form
    with _written(target) as file:
        if service is None:
            _from_tables(connection, name, given, wanted, file)
        else:
            api = client_of("pipeline", service, connection.token(service), option="--pipeline")
            _from_service(api, name, given, wanted, file)
        if target is None:
            file.seek(0)
            _show(name, form, file)


def _show(name: Name, form: Form, file: IO[bytes]) -> None:
    if form is Form.TABLE:
        _VIEWS[name].show(json.load(file), Format.TABLE)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(file)
    sys.stdout.flush()


@contextmanager
def _written(target: Path | None) -> Iterator[IO[bytes]]:
    """Give a file that becomes `target` once everything is in it, or one that goes away."""
    if target is None:
        with tempfile.TemporaryFile() as file:
            yield file
        return
    try:
        with whole_file(target) as file:
            yield file
    except OSError as error:
        raise CommandFailed(f"{target} can't be written: {error.strerror}") from error


def _from_tables(
    connection: Connection, name: Name, requested: Mapping[str, str], form: Form, file: IO[bytes]
) -> None:
    options = [part for key, value in requested.items() for part in (f"--{key}", value)]
    service_commands.require_pipeline()
    arguments = ["report", name, "--format", form, *options]
    code = service_commands.write_to(file, connection, "pipeline", arguments)
    if code != 0:
        raise typer.Exit(code)


def _from_service(
    api: Client, name: Name, requested: Mapping[str, str], form: Form, file: IO[bytes]
) -> None:
    """Write all pages of a report as one."""
    query = {"publisher_agent" if key == "agent" else key: one for key, one in requested.items()}
    with api:
        if form is Form.HTML:
            path = with_query("/reports/delivery.html", **query)
            file.write(api.answer(path, "pipeline").content)
            return
        requested_form = {**query, "format": form.value, "limit": "10000"}
        pages = _pages(api, with_query(f"/reports/{name}", **requested_form))
        if form is Form.CSV:
            count = 0
            for number, page in enumerate(pages):
                lines = page.partition(b"\r\n")[2]
                file.write(page if number == 0 else lines)
                count += len(lines)
            _report_empty(count, requested)
            return
        documents: list[dict[str, Any]] = [json.loads(page) for page in pages]
    _report_empty(sum(len(document["rows"]) for document in documents), requested)
    rows = [row for document in documents for row in document["rows"]]
    file.write(json.dumps({**documents[0], "next": None, "rows": rows}).encode() + b"\n")


def _report_empty(count: int, requested: Mapping[str, str]) -> None:
    """Say that there is nothing of whom the report was asked for: the name may be wrong."""
    named = [f"{key} {requested[key]}" for key in ("subscriber", "agent") if key in requested]
    if named and not count:
        output.report(
            f"nothing was measured of {', '.join(named)} in these hours; is that its name?"
        )


def _pages(api: Client, path: str) -> Iterator[bytes]:
    following: str | None = path
    while following:
        answer = api.answer(following, "pipeline")
        following = answer.following
        yield answer.content
