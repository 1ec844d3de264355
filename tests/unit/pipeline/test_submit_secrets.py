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


def submitted(folder: Path, master: str, *options: str) -> None:
    """Submit a task to a Spark that notes how it was started, in the folder."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SPARK_SUBMIT)
    program.chmod(0o755)
    prepare(Location.parse(str(folder / "tables")))
    subprocess.run(
        (sys.executable, "-m", "packhorse_services.pipeline", "submit", *options, "measures"),
        env={
            **os.environ,
            "NOTED": str(folder),
            "SPARK_HOME": str(folder),
            "PACKHORSE_SPARK_MASTER": master,
            "PACKHORSE_SPARK_CONF": json.dumps({"spark.some.key": "hid\\den = x"}),
            "PACKHORSE_TABLES_URL": str(folder / "tables"),
        },
        check=False,
        timeout=600,
    )


@pytest.mark.usefixtures("jars")
@pytest.mark.parametrize(
    ("master", "options", "python"),
    [
        ("spark://127.0.0.1:9", ("--executor-python", "/other/python"), "/other/python"),
        (MASTER, (), "/opt/packhorse/bin/python"),
        (MASTER, ("--deploy-mode", "cluster"), os.environ.get("PYSPARK_PYTHON", "")),
    ],
)
def test_settings_of_spark_are_on_no_command_line(
    master: str, options: tuple[str, ...], python: str, tmp_path: Path
) -> None:
    submitted(tmp_path, master, *options)
    line = (tmp_path / "line").read_text()
    assert "spark-submit" in line
    assert "spark.some.key" not in line
    assert "spark.some.key=hid\\\\den = x\n" in (tmp_path / "file").read_text()
    assert (tmp_path / "mode").read_text() == "600\n"
    assert (tmp_path / "python").read_text() == f"{python}\n"
