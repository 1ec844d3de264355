"""What Spark's Python workers are forked from: which PySpark they have, and that it may fork."""

import subprocess
import sys

import pytest

from packhorse_services.pipeline.engine import python_daemon

HOME = "/spark"
ARCHIVES = [
    f"{HOME}/python/lib/pyspark.zip",
    f"{HOME}/python/lib/py4j-0.10.9.9-src.zip",
    f"{HOME}/jars/spark-core_2.13-4.2.0.jar",
]
OTHERS = ["/work", "/own/library.zip", *sys.path]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of modules as Spark sets it, for the test alone."""
    found = [*ARCHIVES, *OTHERS]
    monkeypatch.setattr(sys, "path", found)
    return found


def test_of_archives_those_of_spark_are_left(path: list[str]) -> None:
    python_daemon.leave_archives()
    assert path == OTHERS


def test_where_pyspark_is_in_its_archive_alone_they_stay(
    path: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_daemon, "find_spec", lambda _: None)
    python_daemon.leave_archives()
    assert path == [*ARCHIVES, *OTHERS]


def test_what_is_imported_before_the_forks_begins_no_thread() -> None:
    program = "import os, pyspark.worker, pyspark.daemon; print(os.listdir('/proc/self/task'))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(",") == 0, done.stdout
