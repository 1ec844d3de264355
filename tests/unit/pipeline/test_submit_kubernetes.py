"""What `submit` asks Spark for on Kubernetes, and what the image's pods start; nothing is run."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from packhorse import __version__
from packhorse_services.pipeline import pod
from packhorse_services.pipeline.engine.kubernetes import driver_here
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.program import program
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.submit import _watched, in_cluster, submission

MASTER = "k8s://http://127.0.0.1:9"
IMAGE = "spark.kubernetes.container.image"
DRIVER_ENV = "spark.kubernetes.driverEnv."
EXECUTOR = {
    "SPARK_HOME": "/spark",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "600m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "packhorse-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(11)},
}


def settings(**conf: str) -> Settings:
    return Settings(spark_master=MASTER, spark_conf=conf)


def test_executors_are_pods_of_the_product_s_image_that_has_the_jars(jars: Path) -> None:
    assert driver_here(settings()) == {
        IMAGE: f"packhorse-pipeline:{__version__}",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.host": "127.0.0.1",
    }


def test_settings_that_were_chosen_win() -> None:
    chosen = settings(**{IMAGE: "registry/packhorse:7", "spark.kubernetes.namespace": "content"})
    with submission(chosen, in_cluster(chosen, "/other/python", {})) as command:
        assert command[1:3] == ["--master", MASTER]
        said = Path(command[command.index("--properties-file") + 1]).read_text()
    assert said.splitlines() == [
        "spark.driver.memory=1g",
        f"{IMAGE}=registry/packhorse:7",
        "spark.pyspark.python=/other/python",
        "spark.kubernetes.namespace=content",
    ]


def test_a_driver_in_the_cluster_gets_the_settings_of_the_command() -> None:
    environment = {
        "PACKHORSE_TABLES_URL": "s3://archive/tables?region=eu-central-1",
        "PACKHORSE_JOURNAL_URL": "kafka://kafka:9092?acks=all",
        "PACKHORSE_TOPIC_PREFIX": "content",
        "PACKHORSE_SPARK_MEMORY": "2g",
        "HOME": "/root",
    }
    conf = in_cluster(settings(), None, environment)
    handed = {k.removeprefix(DRIVER_ENV): v for k, v in conf.items() if k.startswith(DRIVER_ENV)}
    names = ("PACKHORSE_TABLES_URL", "PACKHORSE_JOURNAL_URL", "PACKHORSE_TOPIC_PREFIX")
    assert handed == {name: environment[name] for name in names}
    assert "spark.driver.extraClassPath" not in conf, "the image knows where its jars are"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PACKHORSE_JOURNAL_URL", "postgresql://packhorse:hidden@db/journal"),
        ("PACKHORSE_JOURNAL_URL", "kafka://kafka:9093?sasl.username=a&sasl.password=hidden"),
        ("PACKHORSE_JOURNAL_URL", "kafka://kafka:9093?sasl%2E%70assword=hidden"),
        ("PACKHORSE_JOURNAL_URL", "kafka://kafka:9093?ssl.key.pem=hidden"),
        ("PACKHORSE_JOURNAL_URL", "kafka://kafka:9093?sasl.oauthbearer.token=hidden"),
        ("PACKHORSE_DATABASE_URL", "postgresql://db/author"),
        ("PACKHORSE_SUBSCRIBER_DATABASES", '{"sub1": "postgresql://db/sub1"}'),
        ("PACKHORSE_PUBLISHER_TOKEN", "hidden"),
    ],
)
def test_no_secret_goes_into_the_description_of_a_pod(name: str, value: str) -> None:
    with pytest.raises(TaskRefused, match=name) as refused:
        in_cluster(settings(), None, {name: value})
    assert "hidden" not in str(refused.value)
    reference = f"spark.kubernetes.driver.secretKeyRef.{name}"
    assert reference in str(refused.value)
    conf = in_cluster(settings(**{reference: "packhorse:key"}), None, {name: value})
    assert not [one for one in conf if one.startswith(DRIVER_ENV)]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo ' exit code: 125'; echo ' exit code: 3'", 3),
        ("echo ' exit code: 0'", 0),
        ("echo nothing of a pod", 1),
        ("echo ' exit code: 0'; exit 7", 1),
    ],
)
def test_the_command_ends_as_the_driver_s_container_did(
    script: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    submits = tmp_path / "bin" / "spark-submit"
    submits.parent.mkdir()
    submits.write_text(f'#!/bin/sh\necho "$@"\n{script}\n')
    submits.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PACKHORSE_SPARK_MASTER", MASTER)
    with pytest.raises(SystemExit) as ended:
        program("submit")(("submit", "--deploy-mode", "cluster", "mark", "--json"))
    assert ended.value.code == code
    given = capfd.readouterr().err.splitlines()[0]
    assert given.endswith("--deploy-mode cluster local:///opt/packhorse/program.py mark --json")


def test_spark_submit_ends_with_the_command(tmp_path: Path) -> None:
    submits = tmp_path / "spark-submit"
    submits.write_text("#!/bin/sh\necho $$\nexec sleep 60\n")
    submits.chmod(0o755)
    code = f"from {_watched.__module__} import _watched; _watched([{str(submits)!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as command:
        assert command.stderr is not None
        watched = os.pidfd_open(int(command.stderr.readline()))
        command.send_signal(signal.SIGTERM)
    ended = select.poll()  # unlike select.select, it takes descriptors above 1,023
    ended.register(watched, select.POLLIN)
    assert ended.poll(120_000)
    os.close(watched)


def test_a_driver_s_pod_submits_to_itself_with_the_image_s_jars() -> None:
    environment = {"SPARK_HOME": "/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.6"}
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///program.py", "mark"]
    assert pod.driver(given, Path("/jars"), environment) == [
        *("/spark/bin/spark-submit", "--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.0.0.6", "--driver-class-path", "/jars/*"),
        *given,
    ]


def test_an_executor_s_pod_starts_what_its_variables_say() -> None:
    found, *rest = pod.executor("/java", Path("/jars"), EXECUTOR)
    assert found == "/java"
    assert rest[:11] == [f"-Dn={number}" for number in range(11)], "in the order of their numbers"
    assert rest[11:15] == [
        *("-Xms600m", "-Xmx600m", "-cp", "/opt/spark/conf:/spark/jars/*:/jars/*"),
    ]
    said = dict(zip(rest[16::2], rest[17::2], strict=True))
    assert said["--hostname"] == "10.0.0.7"
    assert said["--driver-url"] == EXECUTOR["SPARK_DRIVER_URL"]
    assert len(said) == 7


def test_the_image_has_a_program_of_each_name() -> None:
    recipe = (Path(__file__).parents[3] / "services" / "Dockerfile").read_text()
    roles = re.findall(r"for role in (.+?);", recipe)
    assert roles == ["driver executor"]
    assert f"-m {pod.__name__} %s" in recipe
