"""What is set for Spark may be a secret, and anybody on the machine may read command lines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location

SPARK_SUBMIT = """#!/bin/sh
cat "/proc/$$/cmdline" > "$NOTED/line"
while [ "$1" != --properties-file ]; do shift; done
stat --format=%a "$2" > "$NOTED/mode"
cat "$2" > "$NOTED/file"
echo "$PYSPARK_PYTHON" > "$NOTED/python"
exit 1
"""
MASTER = "k8s://http://127.0.0.1:9"


STAYING = """#!/bin/sh
while [ "$1" != --properties-file ]; do shift; done
echo "$2"
exec sleep 600
"""


def submitted(
    folder: Path, master: str, *options: str, spark_submit: str = SPARK_SUBMIT
) -> subprocess.Popen[str]:
    """Submit a task to a Spark that notes in the folder how it was started."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(spark_submit)
    program.chmod(0o755)
    prepare(Location.parse(str(folder / "tables")))
    return subprocess.Popen(
        (sys.executable, "-m", "packhorse_services.pipeline", "submit", *options, "measures"),
        env={
            **os.environ,
            "NOTED": str(folder),
            "SPARK_HOME": str(folder),
            "PACKHORSE_SPARK_MASTER": master,
            "PACKHORSE_SPARK_CONF": json.dumps({"spark.some.key": "hid\\den = x"}),
            "PACKHORSE_TABLES_URL": str(folder / "tables"),
        },
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("jars")
@pytest.mark.parametrize(
    ("master", "options", "python"),
    [
        ("spark://127.0.0.1:9", ("--executor-python", "/other/python"), "/other/python"),
        (MASTER, (), "/opt/packhorse/bin/python"),
        (MASTER, ("--deploy-mode", "cluster"), ""),
    ],
)
def test_settings_of_spark_are_on_no_command_line(
    master: str,
    options: tuple[str, ...],
    python: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)  # a session of this process may have set it
    with submitted(tmp_path, master, *options) as submit:
        submit.communicate(timeout=600)
    line = (tmp_path / "line").read_text()
    assert "spark-submit" in line
    assert "spark.some.key" not in line
    assert "spark.some.key=hid\\\\den = x\n" in (tmp_path / "file").read_text()
    assert (tmp_path / "mode").read_text() == "600\n"
    assert (tmp_path / "python").read_text() == f"{python}\n"


@pytest.mark.usefixtures("jars")
def test_a_submit_that_is_ended_leaves_no_file_of_settings(tmp_path: Path) -> None:
    with submitted(tmp_path, MASTER, "--deploy-mode", "cluster", spark_submit=STAYING) as submit:
        assert submit.stderr is not None
        settings = Path(submit.stderr.readline().strip())
        assert settings.is_file()
        submit.terminate()
        submit.communicate(timeout=600)
    assert not settings.exists()
