"""How far a run of the archive says that it is, and the line that it ends with."""

import pytest
from prometheus_client import REGISTRY

from packhorse_services.pipeline.archive.command import said
from packhorse_services.pipeline.archive.progress import QUERY, ArchiveProgress, Done


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


def _told(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"packhorse_pipeline_{name}", {"query": QUERY})


def test_a_batch_is_counted_in_what_the_run_says_and_in_the_metrics() -> None:
    progress = ArchiveProgress()
    before, batches = _told("records_total") or 0, _told("batch_seconds_count") or 0
    progress.expect(9)
    assert _told("behind_records") == 9
    progress.passed(0, 3, seconds=1.5, lag=4)
    progress.passed(1, 4, seconds=0.5, lag=2)
    assert progress.done == Done(7, 2)
    assert (_told("records_total") or 0) - before == 7
    assert (_told("batch_seconds_count") or 0) - batches == 2
    assert _told("behind_records") == 2


def test_a_batch_without_records_counts_only_for_the_lag() -> None:
    progress = ArchiveProgress()
    progress.expect(2)
    progress.passed(0, 0, seconds=0.1, lag=0)
    assert progress.done == Done()
    assert _told("behind_records") == 0
