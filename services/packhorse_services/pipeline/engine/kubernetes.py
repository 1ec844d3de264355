"""Spark on Kubernetes: what a driver needs there, and where the image has what it names."""

import socket
from contextlib import suppress
from urllib.parse import urlsplit

from packhorse import __version__
from packhorse_services.pipeline.engine.jars import require_jars
from packhorse_services.pipeline.settings import Settings

PYTHON = "/opt/packhorse/bin/python"
PROGRAM = "local:///opt/packhorse/program.py"
IMAGE = {"spark.kubernetes.container.image": f"packhorse-pipeline:{__version__}"}
_MASTER = "k8s://"
_PORT = 443


def is_kubernetes(master: str) -> bool:
    """Return whether the master is the API server of a Kubernetes cluster."""
    return master.startswith(_MASTER)


def driver_here(settings: Settings) -> dict[str, str]:
    """Return the settings of a driver in this process, whose executors are pods.

    Their image has the jars already, so none are sent to them. Raises `JarsMissing`.
    """
    jars = {"spark.driver.extraClassPath": f"{require_jars(settings.spark_jars)}/*"}
    return IMAGE | jars | _address_towards(settings.spark_master)


def secret_of(variable: str, role: str) -> str:
    """Return the setting that gives the pods of a role a variable from a secret."""
    return f"spark.kubernetes.{role}.secretKeyRef.{variable}"


def _address_towards(master: str) -> dict[str, str]:
    """Return under which address the pods find this driver: its name means nothing to them."""
    server = urlsplit(master.removeprefix(_MASTER))
    with suppress(OSError, ValueError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((server.hostname or "", server.port or _PORT))  # sends nothing
        return {"spark.driver.host": asked.getsockname()[0]}
    return {}
