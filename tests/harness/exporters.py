"""Exporters that run for the length of a test."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from packhorse_services.publisher.exporter import Exporter


@contextmanager
def running(exporters: Sequence[Exporter]) -> Iterator[Sequence[Exporter]]:
    with ExitStack() as stack:
        for exporter in exporters:
            exporter.start()
            stack.callback(exporter.stop, 30)
        yield exporters
