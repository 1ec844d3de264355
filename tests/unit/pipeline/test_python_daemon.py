"""What Spark's Python workers are forked from: which PySpark they have, and that it may fork."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from packhorse_services.pipeline.engine import sitecustomize
from packhorse_services.pipeline.engine.session import _LOCAL

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
    sitecustomize.leave_archives()
    assert path == OTHERS


def test_where_pyspark_is_in_its_archive_alone_they_stay(
    path: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitecustomize, "find_spec", lambda _: None)
    sitecustomize.leave_archives()
    assert path == [*ARCHIVES, *OTHERS]


FORKED = """
import os, sys, threading
from pathlib import Path
from packhorse_services.pipeline.engine.python_daemon import prepare

def threads():
    return [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]

prepare()
there = set(sys.modules)
print(sorted(set(threads()) - {"jemalloc_bg_thd"}), threading.active_count(), flush=True)
if child := os.fork():
    sys.exit(os.waitpid(child, 0)[1])
import pyarrow as pa
from pyarrow import compute
rows = pa.table({"n": list(range(100_000))})
print(compute.sum(rows["n"]).as_py(), sorted(set(sys.modules) - there), flush=True)
os._exit(0)
"""


def test_what_is_imported_before_the_forks_begins_only_threads_that_may_be_forked() -> None:
    """Those of allocators; numpy would have some, but for what Spark tells its workers."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert before == f"[{Path(sys.executable).name[:15]!r}] 1"
    assert after == "4999950000 []"


def test_processes_that_are_not_forked_leave_the_archives_too(tmp_path: Path) -> None:
    """And begin with what the operator has for every Python."""
    (tmp_path / "sitecustomize.py").write_text("print('customized')")
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    own = _LOCAL["spark.executorEnv.PYTHONPATH"]
    program = "import sys, pyspark; print(pyspark.__file__, *sys.path, sep=chr(10))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), own, str(tmp_path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    customized, used, *path = done.stdout.splitlines()
    assert (customized, used, done.stderr) == ("customized", pyspark.__file__, "")
    assert str(tmp_path) in path
    assert not {str(archive), own} & set(path)
