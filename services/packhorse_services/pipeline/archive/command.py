"""`packhorse-pipeline archive`."""

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from packhorse.runtime import logs
from packhorse.runtime.configuration import loaded
from packhorse.runtime.metrics import Reported, report
from packhorse.runtime.signals import set_by_signals
from packhorse_services.pipeline.archive.progress import Done
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

if TYPE_CHECKING:
    from packhorse_services.pipeline.archive.task import Choices


def archive(
    *,
    continuous: Annotated[bool, typer.Option(help="Go on until SIGTERM or SIGINT.")] = False,
    accept_gap: Annotated[
        bool, typer.Option(help="Record what the journal has forgotten, and go on without it.")
    ] = False,
    new_checkpoint: Annotated[
        bool, typer.Option(help="Leave a damaged checkpoint; go on from what the tables hold.")
    ] = False,
    interval: Annotated[int, typer.Option(min=1, help="Seconds between continuous batches.")] = 10,
    max_offsets: Annotated[
        int, typer.Option(min=1, help="Records a batch takes at most.")
    ] = 250_000,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve Prometheus' metrics here; 0: don't.")
    ] = 0,
) -> None:
    """Archive what is in the journal, each record once: raw, and decoded."""
    from packhorse_services.pipeline.archive.task import Choices

    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    _require(settings)
    _serve_metrics(settings.host, metrics_port)
    choices = Choices(accept_gap, new_checkpoint, continuous, interval)
    done, stopped = _run(settings, max_offsets, choices)
    if not continuous:
        typer.echo(done)
    if stopped:
        raise typer.Exit  # with 0; `run` does nothing after it


def _run(settings: Settings, max_offsets: int, choices: "Choices") -> tuple[str, bool]:
    """Return what was done, and whether a signal ended it."""
    from packhorse_services.pipeline.archive.lease import only_run
    from packhorse_services.pipeline.archive.query import ArchivedJournal
    from packhorse_services.pipeline.archive.task import Archive
    from packhorse_services.pipeline.engine.session import running_spark

    location = Location.parse(settings.tables_url)
    topics = settings.topics
    origin = ArchivedJournal(settings.journal_url, topics, max_offsets)
    stop = threading.Event()
    lease = only_run(settings.author_url, location.shown, stop, wait=choices.continuous)
    # The lease is taken before a JVM starts, and given back before that JVM has ended.
    with ExitStack() as session, ExitStack() as leased:
        with set_by_signals(stop):
            keep = leased.enter_context(lease)
            if stop.is_set():
                return said(Done(), location.shown, stopped=True), True
            spark = session.enter_context(running_spark(settings, location, "archive"))
        run = Archive(spark, location, origin, settings.blobs_url, choices, stop=stop)
        with set_by_signals(stop):  # anew: Spark has taken SIGINT for itself
            run.run(keep)
    return said(run.progress.done, location.shown, stopped=stop.is_set()), stop.is_set()


def said(done: Done, place: str, *, stopped: bool) -> str:
    """Return what a run has done, which a signal may have `stopped`."""
    if not done.batches:
        if stopped:
            return "ended by a signal before anything was archived"
        return f"nothing was waiting; the archive at {place} is up to date"
    records = "1 record" if done.records == 1 else f"{done.records} records"
    batches = f"{done.batches} {'batch' if done.batches == 1 else 'batches'}"
    early = "; ended by a signal, the rest is for the next run" if stopped else ""
    return f"archived and decoded {records} in {batches}, to {place}{early}"


def _require(settings: Settings) -> None:
    settings.require("journal_url", "blobs_url")
    if settings.journal_url.startswith("memory:"):
        raise TaskRefused("a journal in memory can't be archived: no other process reads it")


def _serve_metrics(host: str, port: int) -> None:
    if not port:
        return
    from prometheus_client import start_http_server

    report("packhorse_pipeline_")
    try:
        start_http_server(port, host, Reported())
    except OSError as error:
        raise TaskRefused(
            f"metrics can't be served on {host}:{port}: {error.strerror}; choose another port"
        ) from error
