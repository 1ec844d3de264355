"""The line that a run of the archive ends with."""

import pytest

from packhorse_services.pipeline.archive.command import said
from packhorse_services.pipeline.engine.stream_progress import Done, QueryWatch


@pytest.mark.parametrize(
    ("done", "stopped", "wanted"),
    [
        (Done(), False, "nothing was waiting; the archive at /t is up to date"),
        (Done(), True, "ended by a signal before anything was archived"),
        (Done(1, 1), False, "archived and decoded 1 record in 1 batch, to /t"),
        (
            Done(7, 2),
            True,
            "archived and decoded 7 records in 2 batches, to /t; ended by a signal, the rest is "
            "for the next run",
        ),
    ],
)
def test_it_says_what_was_done(done: Done, stopped: bool, wanted: str) -> None:
    assert said(done, "/t", stopped=stopped) == wanted


def test_batches_are_counted_by_their_query() -> None:
    watch = QueryWatch(bar=False)
    watch.passed("said-a", 3)
    watch.passed("said-a", 4)
    watch.passed("said-b", 1)
    assert watch.done("said-a") == Done(7, 2)
    assert watch.done("said-b") == Done(1, 1)
    assert watch.done("said-c") == Done()


def test_records_that_spark_did_not_read_are_counted_once() -> None:
    watch = QueryWatch(bar=False)
    watch.counts("said-d", 0, 5)
    watch.counts("said-d", 1, 7)
    assert watch.counted("said-d", 0) == 5
    assert watch.counted("said-d", 0) == 0
    assert watch.counted("said-d", 1) == 7
    assert watch.counted("said-e", 1) == 0
