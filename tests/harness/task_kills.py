"""The pipeline's tasks ended at a point: in a process that is killed, or by an error in this."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.harness.processes import Process
from tests.harness.spark import spark_environment

_PIPELINE = "packhorse_services.pipeline"
_END_S = 600.0


class Killed(Exception):
    """Stands for the end of the process."""


@contextmanager
def broken_off(owner: Any, name: str, last: str = "") -> Iterator[None]:
    """End what runs within before a function is called, as its last argument `last` if given."""

    def dies(*given: Any, **_named: Any) -> None:
        if not last or given[-1] == last:
            raise Killed

    with patch.object(owner, name, dies), pytest.raises(Killed):
        yield


def killed_task(
    location: Location, point: str, *command: str, settings: Mapping[str, str] | None = None
) -> None:
    """Run a task in a process of its own, which ends with its JVM at a point of the pipeline."""
    deadly = ("-m", "tests.harness.killed_program", f"{_PIPELINE}.{point}", _PIPELINE, *command)
    about = {**spark_environment(), "PACKHORSE_TABLES_URL": location.base, **(settings or {})}
    run = Process("killed", (sys.executable, *deadly), about, Path(location.base).parent)
    run.start()
    assert run.wait(_END_S) == -signal.SIGKILL, run.said()
