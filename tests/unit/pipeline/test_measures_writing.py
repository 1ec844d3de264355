"""What a run of measures notes, without Spark: a commit that was done is not another run's."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from packhorse_services.pipeline.errors import Overtaken
from packhorse_services.pipeline.measures import writing
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import MEASURES, prepare, stored
from packhorse_services.pipeline.storage.location import Location


def found(folder: Path) -> MeasuresTables:
    location = Location.parse(str(folder))
    prepare(location, MEASURES)
    none: Any = None  # no Spark: nothing is read by it
    return MeasuresTables(none, location, {name: stored(location, name) for name in MEASURES})


def test_a_note_whose_answer_was_lost_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(*given: Any, **options: Any) -> None:
        write_deltalake(*given, **options)
        raise CommitFailedError("a concurrent transaction has committed")

    run = found(tmp_path)
    monkeypatch.setattr(writing, "write_deltalake", unanswered)
    run.note([])
    assert stored(run.location, tables.MEASURED).version() == 1


def test_a_note_that_another_run_was_first_with_is_not_made(tmp_path: Path) -> None:
    first, second = found(tmp_path), found(tmp_path)
    first.note([])
    with pytest.raises(Overtaken, match="another run of measures is at work"):
        second.note([])
