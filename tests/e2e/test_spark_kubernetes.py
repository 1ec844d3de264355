"""Tasks on Kubernetes: Spark's own pods, run as containers of the product's image."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from deltalake import DeltaTable

from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.e2e.kubernetes_api import KubernetesApi, kubernetes_api
from tests.harness import containers
from tests.harness.archive import everything_in, fill
from tests.harness.deployment import ROOT
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.harness.spark import QUICK

pytestmark = [
    *(pytest.mark.spark, pytest.mark.s3, pytest.mark.depth, pytest.mark.timeout(3600)),
    pytest.mark.skipif(bool(containers.missing()), reason=f"lacks {containers.missing()}"),
]

KEYS = {"AWS_ACCESS_KEY_ID": "access-key", "AWS_SECRET_ACCESS_KEY": "secret-key"}
DEPLOYMENT = ROOT / "docs" / "deployment.md"
TOPICS = Topics.named("pods", {})


@pytest.fixture(scope="module")
def image() -> str:
    return containers.built("packhorse-pipeline")


@pytest.fixture
def api(image: str, database_url: str, s3: S3Server, tmp_path: Path) -> Iterator[KubernetesApi]:
    kept = {"access-key": ACCESS_KEY, "secret-key": SECRET_KEY, "journal-url": database_url}
    with kubernetes_api(tmp_path, {"packhorse": kept}) as served:
        yield served


@pytest.fixture
def wanted(database_url: str) -> dict[tuple[str, int, int], bytes]:
    """What the journal has, and the archive should."""
    journal = open_journal(database_url, client_name="tests")
    try:
        fill(journal, TOPICS, range(3))
        return everything_in(journal, TOPICS)
    finally:
        journal.close()


def conf(api: KubernetesApi, image: str, *drivers: str) -> str:
    """Return Spark's settings: small pods, and secrets by their names, some for a driver's pod."""
    secrets = {
        f"spark.kubernetes.executor.secretKeyRef.{k}": f"packhorse:{v}" for k, v in KEYS.items()
    }
    keys = {**KEYS, "PACKHORSE_JOURNAL_URL": "journal-url"}
    secrets |= {
        f"spark.kubernetes.driver.secretKeyRef.{k}": f"packhorse:{keys[k]}" for k in drivers
    }
    small = {
        **QUICK,
        "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
        "spark.executor.instances": "1",
        "spark.executor.memory": "600m",
        "spark.ui.enabled": "false",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.driver.master": api.url,
    }
    return json.dumps(small | secrets)


def environment(api: KubernetesApi, s3: S3Server, **settings: str) -> dict[str, str]:
    return {
        "PACKHORSE_SPARK_MASTER": f"k8s://{api.url}",
        "PACKHORSE_SPARK_MEMORY": "600m",
        "PACKHORSE_TABLES_URL": s3.url(f"tables-{api.folder.name}"),
        "PACKHORSE_BLOBS_URL": s3.url("blobs"),
        "PACKHORSE_TOPIC_PREFIX": "pods",
        **settings,
    }


def submit_driver(settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "packhorse_services.pipeline", "submit")
    return subprocess.run(
        (*command, "--deploy-mode", "cluster", "archive"),
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )


def archived(api: KubernetesApi, s3: S3Server) -> dict[tuple[str, int, int], bytes]:
    location = Location.parse(s3.url(f"tables-{api.folder.name}"))
    bronze = DeltaTable(location.delta_uri(tables.BRONZE), storage_options=location.delta_options())
    rows = bronze.to_pyarrow_table().to_pylist()
    return {(r["topic"], r["partition"], r["offset"]): r["value"] for r in rows}


def phases(api: KubernetesApi) -> dict[str, list[str]]:
    """Return the phases of the pods that there were, by their roles."""
    found: dict[str, list[str]] = {}
    for pod in api.pods.values():
        role = pod["metadata"]["labels"]["spark-role"]
        found.setdefault(role, []).append(pod["status"]["phase"])
    return found


def shown_secrets(api: KubernetesApi, *secrets: str) -> list[str]:
    """Return those of the secrets that stand in what describes a pod."""
    described = json.dumps(list(api.pods.values()))
    return [one for one in secrets if one in described]


def rights() -> set[tuple[str, str]]:
    """Return the verbs and kinds that the role of the documentation allows to a driver."""
    role = DEPLOYMENT.read_text().partition("kubectl create role packhorse-spark")[2]
    verbs, kinds = re.search(r"--verb=(\S+).+--resource=(\S+)", role, re.DOTALL).groups()
    return set(product(verbs.split(","), kinds.split(",")))


def test_a_driver_where_the_command_is_given_has_its_executors_in_pods(
    api: KubernetesApi,
    image: str,
    s3: S3Server,
    database_url: str,
    wanted: dict[tuple[str, int, int], bytes],
) -> None:
    given = {"PACKHORSE_JOURNAL_URL": database_url, "PACKHORSE_SPARK_CONF": conf(api, image)}
    given |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    pod = containers.Container("packhorse-submits", image, api.folder / "submit.log")
    command = ("packhorse-pipeline", "submit", "archive")
    pod.start(command, environment(api, s3, **given), mounts={}, hosts=set())
    try:
        assert pod.wait() == 0, pod.said()[-8000:]
    finally:
        pod.end()
    assert archived(api, s3) == wanted
    assert phases(api).keys() == {"executor"}
    assert not shown_secrets(api, SECRET_KEY), "executors have their keys from a secret"


def test_a_driver_in_a_pod_does_the_task_and_its_end_is_the_command_s(
    api: KubernetesApi,
    image: str,
    s3: S3Server,
    database_url: str,
    wanted: dict[tuple[str, int, int], bytes],
) -> None:
    secrets = conf(api, image, *KEYS, "PACKHORSE_JOURNAL_URL")
    done = submit_driver(environment(api, s3, PACKHORSE_SPARK_CONF=secrets))
    assert done.returncode == 0, done.stderr[-8000:]
    assert archived(api, s3) == wanted
    assert phases(api)["driver"] == ["Succeeded"]
    assert "executor" in phases(api)
    assert not shown_secrets(api, SECRET_KEY, database_url)
    assert api.asked[True] <= rights(), "the documented role is enough"
    refused = submit_driver(environment(api, s3, PACKHORSE_SPARK_CONF=conf(api, image, *KEYS)))
    assert refused.returncode == 2, refused.stderr[-8000:]
    assert sorted(phases(api)["driver"]) == ["Failed", "Succeeded"]
    said = [api.logs(name) for name, pod in api.pods.items() if pod["status"]["phase"] == "Failed"]
    assert any("PACKHORSE_JOURNAL_URL" in one for one in said)
