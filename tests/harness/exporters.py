"""Exporters that run for the length of a test."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from packhorse_services.publisher.publish.request_intake import RequestIntake


@contextmanager
def running(exporters: Sequence[RequestIntake]) -> Iterator[Sequence[RequestIntake]]:
    with ExitStack() as stack:
        for intake in exporters:
            intake.start()
            stack.callback(intake.stop, 30)
        yield exporters
