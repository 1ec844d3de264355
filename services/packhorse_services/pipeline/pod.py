"""What Spark starts in its pods on Kubernetes: `driver …` and `executor`.

Spark gives an image these words as its command. Ours has a program of each name, which starts this
module with it: no entry point stands before the other programs.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.exit_codes import plain_ends
from packhorse_services.pipeline.engine.jars import java, require_jars, spark_home
from packhorse_services.pipeline.settings import Settings

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_GIVEN = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""The options of Spark's executor, and the variables of its pod that hold their values."""


def main() -> None:
    """Become what the pod is for. Its end is that of the container."""
    role, *arguments = sys.argv[1:]
    with plain_ends():
        jars = require_jars(loaded(Settings).spark_jars)
        found = java()
    home = {"SPARK_HOME": str(spark_home()), "JAVA_HOME": str(found.parent.parent)}
    environment = {**os.environ, **home}
    if role == "driver":
        command = driver(arguments, jars, environment)
    else:
        command = executor(str(found), jars, environment)
    os.execve(command[0], command, environment)  # noqa: S606 - it is no shell


def driver(arguments: Sequence[str], jars: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the command of a driver: what the pod's maker has said, with the image's jars."""
    address = environment["SPARK_DRIVER_BIND_ADDRESS"]
    return [
        *(f"{environment['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client"),
        *("--conf", f"spark.driver.bindAddress={address}"),
        *("--driver-class-path", f"{jars}/*", *arguments),
    ]


def executor(found: str, jars: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the command of an executor, by the variables that Spark gives its pod."""
    options = {k.removeprefix(_OPTION): v for k, v in environment.items() if k.startswith(_OPTION)}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    places = [
        environment.get("SPARK_CONF_DIR"),
        f"{environment['SPARK_HOME']}/jars/*",
        f"{jars}/*",
        environment.get("SPARK_CLASSPATH"),
    ]
    return [
        *(found, *(options[number] for number in sorted(options, key=int))),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, places)), _BACKEND),
        *(part for option, name in _GIVEN.items() for part in (option, environment[name])),
    ]


if __name__ == "__main__":
    main()
