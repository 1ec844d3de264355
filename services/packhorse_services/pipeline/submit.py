"""`packhorse-pipeline submit`: the same program on a cluster, through its `spark-submit`."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from packhorse.runtime import leash
from packhorse.runtime.configuration import loaded
from packhorse.runtime.url_secrets import without_secrets
from packhorse_services.pipeline.engine import kubernetes
from packhorse_services.pipeline.engine.exit_codes import FAILED
from packhorse_services.pipeline.engine.jars import java, require_jars, spark_home
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings

_PROGRAM = Path(__file__).parent / "submitted" / "program.py"


class DeployMode(StrEnum):
    """Where the driver runs: here, or in a pod of its own."""

    CLIENT = "client"
    CLUSTER = "cluster"


def submit(
    context: typer.Context,
    executor_python: Annotated[
        str | None,
        typer.Option(
            help="The Python of the executors' machines, with packhorse and its extra pipeline.",
            show_default="the path of this one; on Kubernetes the image's",
        ),
    ] = None,
    deploy_mode: Annotated[
        DeployMode,
        typer.Option(help="Where the driver runs: here, or in a pod of Kubernetes."),
    ] = DeployMode.CLIENT,
) -> None:
    """Run a task on the cluster of PACKHORSE_SPARK_MASTER: submit [OPTIONS] TASK [OPTIONS]."""
    settings = _for_a_cluster(context.args)
    if deploy_mode is DeployMode.CLUSTER:
        conf, program = in_cluster(settings, executor_python, os.environ), kubernetes.PROGRAM
    else:
        conf, program = with_driver_here(settings, executor_python), str(_PROGRAM)
    command = [*submission(settings, conf), "--deploy-mode", deploy_mode, program, *context.args]
    os.environ["JAVA_HOME"] = str(java().parent.parent)
    if deploy_mode is DeployMode.CLUSTER:
        raise SystemExit(_watched(command))
    os.execv(command[0], command)  # noqa: S606 - it is no shell


def _for_a_cluster(task: Sequence[str]) -> Settings:
    if not task:
        raise TaskRefused("name the task to submit, such as submit archive")
    settings = loaded(Settings)
    if settings.spark_master.startswith("local"):
        raise TaskRefused(
            "PACKHORSE_SPARK_MASTER names no cluster; set it to spark://host:7077 or k8s://https://host"
        )
    return settings


def submission(settings: Settings, conf: Mapping[str, str]) -> list[str]:
    """Return the command up to the mode and the program. Raises `TaskRefused`."""
    return [
        *(_spark_submit(), "--master", settings.spark_master, "--name", "packhorse"),
        *("--driver-memory", settings.spark_memory),
        *(
            part
            for name, value in {**conf, **settings.spark_conf}.items()
            for part in ("--conf", f"{name}={value}")
        ),
    ]


def with_driver_here(settings: Settings, python: str | None) -> dict[str, str]:
    """Return Spark's settings of a driver in this place. Raises `JarsMissing`."""
    if kubernetes.is_kubernetes(settings.spark_master):
        conf = kubernetes.driver_here(settings)
        python = python or kubernetes.PYTHON
    else:
        jars = sorted(require_jars(settings.spark_jars).glob("*.jar"))
        conf = {"spark.jars": ",".join(map(str, jars))}
    pythons = {"spark.pyspark.python": python or sys.executable}
    return conf | pythons | {"spark.pyspark.driver.python": sys.executable}


def in_cluster(
    settings: Settings, python: str | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return Spark's settings of a driver in a pod, to which this program's settings go on.

    A secret must not: whoever may look at the pod would see it. Raises `TaskRefused`.
    """
    if not kubernetes.is_kubernetes(settings.spark_master):
        raise TaskRefused("only on Kubernetes, PACKHORSE_SPARK_MASTER=k8s://…, has a driver a pod")
    conf = kubernetes.IMAGE | {"spark.pyspark.python": python or kubernetes.PYTHON}
    for field in Settings.model_fields:
        name = f"PACKHORSE_{field.upper()}"
        if name not in environment or field.startswith("spark_"):
            continue
        if kubernetes.secret_of(name, "driver") in settings.spark_conf:
            continue
        if _is_secret(field, environment[name]):
            raise TaskRefused(
                f"{name} holds a secret, which the description of the driver's pod would show; keep"
                " it in a secret of Kubernetes, and name that in PACKHORSE_SPARK_CONF: "
                f'{{"{kubernetes.secret_of(name, "driver")}": "NAME:KEY"}}'
            )
        conf[f"spark.kubernetes.driverEnv.{name}"] = environment[name]
    return conf


def _is_secret(field: str, value: str) -> bool:
    of_type = str(Settings.model_fields[field].annotation)
    return SecretStr.__name__ in of_type or without_secrets(value) != value


def _watched(command: Sequence[str]) -> int:
    """Run spark-submit until the driver's pod has ended; return the exit code of its container.

    `spark-submit` itself ends with 0 whatever became of the driver, and only tells its code.
    """
    code = FAILED
    with subprocess.Popen(
        [*leash.on_leash(), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as it:
        for line in it.stdout or ():
            sys.stderr.write(line)
            if told := re.search(r"exit code: (\d+)", line):
                code = int(told[1])
    return code if it.returncode == 0 else FAILED


def _spark_submit() -> str:
    """Return the cluster's own program where SPARK_HOME says so, else the one in PySpark."""
    found = Path(os.environ.get("SPARK_HOME") or spark_home()) / "bin" / "spark-submit"
    if not found.is_file():
        raise TaskRefused(
            f"there is no {found}; set SPARK_HOME to a Spark that has it, or unset it"
        )
    return str(found)
