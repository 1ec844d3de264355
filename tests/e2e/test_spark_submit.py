"""A task on a real cluster of Spark, submitted as an operator would."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyspark
import pytest
from deltalake import DeltaTable

from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.cli.stack.ports import free_ports
from packhorse_services.pipeline.engine.jars import java
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive import everything_in, fill
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


pytestmark = pytest.mark.spark

PROBE = """
import json
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.engine.session import spark_session
from packhorse_services.pipeline.settings import Settings

spark = spark_session(Settings(), Location.parse("/nowhere"), "probe")
conf = spark.sparkContext.getConf()
print("PROBE" + json.dumps({name: conf.get(name) for name in (
    "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone", "spark.app.name")}))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "packhorse_services.pipeline", *arguments),
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


def test_the_archive_runs_on_a_cluster(
    cluster: SparkCluster, database_url: str, tmp_path: Path
) -> None:
    topics = Topics.named("submitted", {})
    settings = {
        **cluster.environment(),
        "PACKHORSE_JOURNAL_URL": database_url,
        "PACKHORSE_TOPIC_PREFIX": "submitted",
        "PACKHORSE_BLOBS_URL": str(tmp_path / "blobs"),
        "PACKHORSE_TABLES_URL": str(tmp_path / "tables"),
    }
    journal = open_journal(database_url, client_name="tests")
    try:
        fill(journal, topics, [0])
        wanted = everything_in(journal, topics)
    finally:
        journal.close()
    done = run("submit", "run", "archive --max-offsets 1000", **settings)
    assert done.returncode == 0, done.stderr[-4000:]
    location = Location.parse(settings["PACKHORSE_TABLES_URL"])
    bronze = DeltaTable(location.delta_uri(tables.BRONZE)).to_pyarrow_table().to_pylist()
    found = [((r["topic"], r["partition"], r["offset"]), r["value"]) for r in bronze]
    assert dict(found) == wanted
    assert len(found) == len(wanted)
    wanted_end = ["packhorse archive FINISHED"]  # the master hears of it on its own
    eventually(lambda: cluster.finished() == wanted_end, what="the application's end")
    assert list(cluster.work.glob("app-*/*/stderr")), "an executor of the worker did it"


def test_a_refusal_is_one_line_and_the_exit_code_comes_through(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    settings = {**cluster.environment(), "PACKHORSE_TABLES_URL": str(tmp_path)}
    done = run("submit", "archive", **settings)
    assert done.returncode == 2
    assert "PACKHORSE_JOURNAL_URL" in done.stderr


@pytest.mark.depth
def test_what_a_bare_spark_submit_was_given_is_not_overruled(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    reported = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "3"}
    reported |= {"spark.pyspark.python": sys.executable, "spark.driver.host": "127.0.0.1"}
    others = {"spark.sql.shuffle.partitions": "7", "spark.driver.memory": "400m"}
    done = subprocess.run(
        (
            *(Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[1]"),
            *(part for name, value in reported.items() for part in ("--conf", f"{name}={value}")),
            probe,
        ),
        env={
            **os.environ,
            "JAVA_HOME": str(java().parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PACKHORSE_SPARK_MASTER": "local[2]",
            "PACKHORSE_SPARK_CONF": json.dumps(others),
            "PACKHORSE_SPARK_JARS": "/nowhere",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert json.loads(said.partition("PROBE")[2].splitlines()[0]) == {
        "spark.master": "local[1]",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
        "spark.app.name": "packhorse probe",
    }


def test_a_session_that_can_not_start_is_reported_in_a_line(tmp_path: Path) -> None:
    settings = {
        "PACKHORSE_SPARK_MASTER": "foo://x",
        "PACKHORSE_JOURNAL_URL": "postgresql://127.0.0.1:9/none",
        "PACKHORSE_BLOBS_URL": str(tmp_path / "blobs"),
        "PACKHORSE_TABLES_URL": str(tmp_path / "tables"),
    }
    done = run("archive", **settings)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "archive: Spark could not start" in done.stderr.splitlines()[-1]
