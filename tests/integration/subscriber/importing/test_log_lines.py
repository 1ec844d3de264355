"""What the log says of packages that leave the queue, and of those that hold it up (R10, R19)."""

import logging
from typing import Any

import pytest

from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from tests.harness.commands import following
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker
from tests.integration.subscriber.conftest import Workers

TAKEN_OUT = "packages were taken out of the queue"


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the members of each line of an event."""
    return [vars(record) for record in caplog.records if record.getMessage() == event]


def test_a_line_says_that_a_package_was_given_up(
    feed: Feed, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = workers(policy=RetryPolicy(1, 0.0, 0.0))
    bad = feed.bad()
    worker.run()
    (line,) = said(caplog, TAKEN_OUT)
    assert (line["levelname"], line["agent"], line["status"]) == (
        "WARNING",
        "main",
        "REMOVED_FAILED",
    )
    assert (line["first_offset"], line["last_offset"], line["packages"]) == (bad, bad, 1)
    assert line["attempts"] == 2
    assert "ck_node_properties" in line["reason"]


def test_a_line_says_what_a_command_removed_and_one_whose_it_was(
    feed: Feed, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    with following(worker) as follower:
        first, second, third = (feed.add(page(f"/n{number}")) for number in range(3))
        feed.clear(worker.name, second, "c1")
        feed.clear(worker.name, third, "c2")
        follower.catch_up()
        worker.run()
    commands = said(caplog, "a command is in force")
    assert [
        (line["command_id"], line["action"], line["agent"], line["user"]) for line in commands
    ] == [("c1", "CLEAR", "main", "operator"), ("c2", "CLEAR", "main", "operator")]
    assert [
        (line["command_id"], line["first_offset"], line["last_offset"], line["packages"])
        for line in said(caplog, TAKEN_OUT)
    ] == [("c1", first, second, 2), ("c2", third, third, 1)]


def test_a_line_says_that_a_package_which_had_failed_is_imported(
    feed: Feed,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = workers(policy=RetryPolicy(-1, 0.0, 0.0))
    apply, failures = importer.apply, iter(range(3))

    def failing(*arguments: Any, **more: Any) -> None:
        if next(failures, None) is not None:
            raise ValueError("not yet")
        apply(*arguments, **more)

    monkeypatch.setattr(importer, "apply", failing)
    offset = feed.add(page("/a"))
    feed.add(page("/b"))
    worker.run()
    (line,) = said(caplog, "a package that had failed is imported")
    assert (line["agent"], line["offset"], line["attempts"]) == ("main", offset, 4)
