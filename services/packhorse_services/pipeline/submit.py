"""`packhorse-pipeline submit`: the same program on a cluster, through its `spark-submit`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.jars import java, require_jars
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings

_PROGRAM = Path(__file__).parent / "submitted" / "program.py"


def submit(
    context: typer.Context,
    executor_python: Annotated[
        str | None,
        typer.Option(
            help="The Python of the executors' machines, with packhorse and its extra pipeline.",
            show_default="the path of this one",
        ),
    ] = None,
) -> None:
    """Run a task on the cluster of PACKHORSE_SPARK_MASTER: submit [OPTIONS] TASK [OPTIONS].

    The driver runs here.
    """
    if not context.args:
        raise TaskRefused("name the task to submit, such as submit archive")
    settings = loaded(Settings)
    if settings.spark_master.startswith("local"):
        raise TaskRefused("PACKHORSE_SPARK_MASTER names no cluster; set it to spark://host:7077")
    python = executor_python or sys.executable
    command = submission(settings, python)
    os.environ["JAVA_HOME"] = str(java().parent.parent)
    os.execv(command[0], [*command, str(_PROGRAM), *context.args])  # noqa: S606 - it is no shell


def submission(settings: Settings, python: str) -> Sequence[str]:
    """Return the command up to the program. Raises `JarsMissing`, `TaskRefused`."""
    jars = sorted(require_jars(settings.spark_jars).glob("*.jar"))
    pythons = {"spark.pyspark.python": python, "spark.pyspark.driver.python": sys.executable}
    conf = {**pythons, **settings.spark_conf}
    return [
        *(_spark_submit(), "--master", settings.spark_master, "--deploy-mode", "client"),
        *("--name", "packhorse", "--driver-memory", settings.spark_memory),
        *("--jars", ",".join(map(str, jars))),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def _spark_submit() -> str:
    """Return the cluster's own program where SPARK_HOME says so, else the one in PySpark."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    found = home / "bin" / "spark-submit"
    if not found.is_file():
        raise TaskRefused(
            f"there is no {found}; set SPARK_HOME to a Spark that has it, or unset it"
        )
    return str(found)
