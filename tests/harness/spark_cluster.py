"""A real Spark cluster of one master and one worker, as processes on loopback."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyspark

from packhorse_services.cli.stack.ports import free_ports
from packhorse_services.pipeline.engine.jars import java
from tests.harness.processes import Process
from tests.harness.spark import QUICK, program_conf
from tests.harness.waiting import eventually

_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_SMALL = {
    **program_conf(),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class SparkCluster:
    """A cluster with a worker that has registered. `work` has a folder for each application."""

    master: str
    web: str
    work: Path

    def environment(self) -> dict[str, str]:
        """Return the settings of a program that runs its tasks here."""
        return {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PACKHORSE_SPARK_MASTER": self.master,
            "PACKHORSE_SPARK_MEMORY": "600m",
            "PACKHORSE_SPARK_CONF": json.dumps(_SMALL),
        }

    def finished(self) -> list[str]:
        """Return the names of the applications that have ended, and how."""
        state = httpx.get(f"{self.web}/json/", timeout=120).json()
        return [f"{one['name']} {one['state']}" for one in state["completedapps"]]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start a cluster; its processes, and those of its applications, end with the block."""
    port, web = free_ports(2)
    cluster = SparkCluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{web}", folder / "work")
    ports = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web))
    size = ("--cores", "1", "--memory", "1g", "--work-dir", str(cluster.work))
    master = _process("master", f"{_DEPLOY}.master.Master", ports, folder)
    worker = _process(
        *("worker", f"{_DEPLOY}.worker.Worker"),
        ("--host", "127.0.0.1", "--webui-port", "0", *size, cluster.master),
        folder,
    )
    try:
        master.start()
        eventually(lambda: _answers(master, cluster.web), timeout=300, what="the master answers")
        worker.start()
        eventually(lambda: _workers(worker, cluster.web), timeout=300, what="the worker is known")
        yield cluster
    finally:
        for process in (worker, master):
            if process.running:
                process.kill()


def _process(name: str, kind: str, arguments: tuple[str, ...], folder: Path) -> Process:
    environment = {
        "JAVA_HOME": str(java().parent.parent),
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "300m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    return Process(
        name, (str(_SPARK / "bin" / "spark-class"), kind, *arguments), environment, folder
    )


def _answers(process: Process, web: str) -> bool:
    assert process.running, process.said()
    try:
        return httpx.get(f"{web}/json/", timeout=120).is_success
    except httpx.TransportError:
        return False


def _workers(process: Process, web: str) -> bool:
    assert process.running, process.said()
    workers = httpx.get(f"{web}/json/", timeout=120).json()["workers"]
    return any(worker["state"] == "ALIVE" for worker in workers)
