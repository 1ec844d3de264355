"""`packhorse-pipeline submit`: the same program on a cluster, its driver here or in a pod."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from packhorse.runtime import leash
from packhorse.runtime.configuration import loaded
from packhorse.runtime.startup import TYPED
from packhorse.runtime.url_secrets import without_secrets
from packhorse_services.pipeline.engine import kubernetes
from packhorse_services.pipeline.engine.exit_codes import FAILED
from packhorse_services.pipeline.engine.jars import java, require_jars, spark_home
from packhorse_services.pipeline.engine.session import properties_file
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings

_PYTHON = "spark.pyspark.python"


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
        with submission(settings, in_cluster(settings, executor_python, os.environ)) as command:
            os.environ["JAVA_HOME"] = str(java().parent.parent)
            raise SystemExit(_watched([*command, *context.args]))
    require_jars(settings.spark_jars)
    _spark_submit()
    os.environ["PYSPARK_PYTHON"] = _executors_python(settings, executor_python)
    os.environ[TYPED] = context.find_root().info_name or ""
    itself = [sys.executable, "-P", "-m", "packhorse_services.pipeline", *context.args]
    os.execv(itself[0], itself)  # noqa: S606 - it is no shell


def _for_a_cluster(task: Sequence[str]) -> Settings:
    if not task:
        raise TaskRefused("name the task to submit, such as submit archive")
    settings = loaded(Settings)
    if settings.spark_master.startswith("local"):
        raise TaskRefused(
            "PACKHORSE_SPARK_MASTER names no cluster; set it to spark://host:7077 or k8s://https://host"
        )
    return settings


@contextmanager
def submission(settings: Settings, conf: Mapping[str, str]) -> Iterator[list[str]]:
    """Give the command up to the task, for as long as the block lasts. Raises `TaskRefused`."""
    memory = {"spark.driver.memory": settings.spark_memory}
    with properties_file({**memory, **conf, **settings.spark_conf}) as options:
        yield [
            *(_spark_submit(), "--master", settings.spark_master, "--name", "packhorse", *options),
            *("--deploy-mode", DeployMode.CLUSTER, kubernetes.PROGRAM),
        ]


def _executors_python(settings: Settings, chosen: str | None) -> str:
    """Return the Python that executors start for a driver here."""
    on_kubernetes = kubernetes.is_kubernetes(settings.spark_master)
    usual = kubernetes.PYTHON if on_kubernetes else sys.executable
    return settings.spark_conf.get(_PYTHON) or chosen or usual


def in_cluster(
    settings: Settings, python: str | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return Spark's settings of a driver in a pod, to which this program's settings go on.

    A secret must not: whoever may look at the pod would see it. Raises `TaskRefused`.
    """
    if not kubernetes.is_kubernetes(settings.spark_master):
        raise TaskRefused("only on Kubernetes, PACKHORSE_SPARK_MASTER=k8s://…, has a driver a pod")
    conf = kubernetes.IMAGE | {_PYTHON: python or kubernetes.PYTHON}
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

    `spark-submit` itself ends with 0 whatever became of the driver, and only tells its code. A
    SIGTERM ends it, and then this program, which so can remove the file of the settings.
    """
    code = FAILED
    with subprocess.Popen(
        [*leash.on_leash(), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as it:
        before = signal.signal(signal.SIGTERM, lambda *_: it.terminate())
        for line in it.stdout or ():
            sys.stderr.write(line)
            if told := re.search(r"exit code: (\d+)", line):
                code = int(told[1])
    signal.signal(signal.SIGTERM, before)
    return code if it.returncode == 0 else FAILED


def _spark_submit() -> str:
    """Return the cluster's own program where SPARK_HOME says so, else the one in PySpark."""
    found = Path(os.environ.get("SPARK_HOME") or spark_home()) / "bin" / "spark-submit"
    if not found.is_file():
        raise TaskRefused(
            f"there is no {found}; set SPARK_HOME to a Spark that has it, or unset it"
        )
    return str(found)
