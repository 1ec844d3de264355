"""`packhorse-pipeline run`: what it refuses, and where it ends."""

import pytest

from packhorse.runtime.startup import plain_refusals
from packhorse_services.pipeline.engine.exit_codes import plain_ends
from packhorse_services.pipeline.program import program


def refused(*tasks: str) -> int:
    """Run the tasks where there is no blob store, so that a snapshot is refused without Spark."""
    with pytest.raises(SystemExit) as ended, plain_refusals(), plain_ends():
        program("run")(["run", *tasks], prog_name="packhorse-pipeline")
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("bogus", "run takes archive, measures, upkeep, snapshot, audit, mark, and not 'bogus'"),
        ("serve", "and not 'serve'"),
        ("", "and not ''"),
        ("snapshot '--keep 3", "can't be read: No closing quotation"),
        ("mark --goone x", "No such option"),
        ("snapshot --keep 0", "Invalid value for '--keep'"),
        ("--keep", "not '--keep'; write a task with its options in quotes"),
    ],
)
def test_a_wrong_task_is_refused_before_the_first_one_runs(
    wrong: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert refused("snapshot", wrong) == 2
    told = capfd.readouterr().err
    assert said in told
    assert "blob store" not in told


def test_it_ends_with_the_first_that_fails(capfd: pytest.CaptureFixture[str]) -> None:
    assert refused("snapshot --keep 3", "mark", "upkeep --dry-run") == 2
    assert capfd.readouterr().err.splitlines() == [
        "not run: mark, upkeep",
        "error: there is no blob store; set PACKHORSE_BLOBS_URL to the author's",
    ]
