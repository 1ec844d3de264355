"""`packhorse-pipeline archive`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from packhorse.runtime import logs
from packhorse.runtime.configuration import loaded
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.settings import Settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    ] = 100_000,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve Prometheus' metrics here; 0: don't.")
    ] = 0,
) -> None:
    """Archive what is in the journal, each record once: raw, and decoded."""
    from packhorse_services.pipeline.archive.bronze import Origin
    from packhorse_services.pipeline.archive.task import Archive, Choices
    from packhorse_services.pipeline.session import spark_session

    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    _require(settings)
    location = Location.parse(settings.tables_url)
    origin = Origin(settings.journal_url, Topics.prefixed(settings.topic_prefix), max_offsets)
    choices = Choices(accept_gap, new_checkpoint, continuous, interval)
    _serve_metrics(settings.host, metrics_port)
    spark = spark_session(settings, location, "archive")
    run = Archive(spark, location, origin, settings.blobs_url, choices)
    try:
        with _stopping(run.stop):
            run.run()
    finally:
        spark.stop()


def _require(settings: Settings) -> None:
    for name in ("journal_url", "blobs_url"):
        if not getattr(settings, name):
            raise TaskRefused(f"the archive needs PACKHORSE_{name.upper()}; set it")
    if settings.journal_url.startswith("memory:"):
        raise TaskRefused("a journal in memory can't be archived: no other process reads it")


def _serve_metrics(host: str, port: int) -> None:
    if not port:
        return
    from prometheus_client import start_http_server

    try:
        start_http_server(port, host)
    except OSError as error:
        raise TaskRefused(
            f"metrics can't be served on {host}:{port}: {error.strerror}; choose another port"
        ) from error


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on the first signal; the second one ends the process at once."""

    def heed(_number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, heed) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
