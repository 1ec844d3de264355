"""The compose file's services as processes: same commands, variables, scripts, health checks."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from packhorse.client.addresses import read_token
from packhorse_services.pipeline.worker import TASKS
from tests.harness.composed import ComposedStack, composed_secrets, prepared_postgres
from tests.harness.deployment import compose, is_ours
from tests.harness.kafka.broker import RunningKafka
from tests.harness.processes import READY_S, is_ready
from tests.harness.waiting import eventually

SUBSCRIBERS = ("sub1", "sub2", "sub3")
PIPELINE = ("pipeline", "pipeline-worker")
PROGRAMS = (
    "publisher",
    "content",
    "cleanup",
    "topology",
    "jobs",
    "console",
    *PIPELINE,
    *SUBSCRIBERS,
)

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


@pytest.fixture
def stack(tmp_path: Path, kafka: RunningKafka) -> Iterator[ComposedStack]:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    composed_secrets(secrets)
    with prepared_postgres(secrets) as postgres:
        stack = ComposedStack(tmp_path, secrets, f"127.0.0.1:{postgres.port}", kafka.bootstrap)
        try:
            yield stack
        finally:
            stack.stop()


def test_it_starts_distributes_and_ends_cleanly(stack: ComposedStack, tmp_path: Path) -> None:
    stack.start("s3")
    eventually(lambda: stack.healthy("s3"), what="s3 healthy")
    for _ in range(2):  # compose runs it at every start
        assert stack.start("topics").wait() == 0, stack.said()
    for name in PROGRAMS:
        stack.start(name)
    for name in PROGRAMS:
        eventually(lambda name=name: ready(stack, name), timeout=READY_S, what=name)
    eventually(lambda: stack.healthy(PROGRAMS[0]), what="the check is the same for all")
    token = read_token(tmp_path / "secrets" / "tokens")
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(headers=headers, trust_env=False, timeout=120) as client:
        distribute(client, stack)
        report = client.get(f"{stack.url('pipeline')}/reports/delivery")
        assert report.json()["rows"] == []  # no task has run
        eventually(lambda: suspended(client, stack) == [True] * len(TASKS), what="schedules")
    assert set(stack.stop().values()) <= {0}, stack.said()


def suspended(client: httpx.Client, stack: ComposedStack) -> list[bool]:
    """Return whether each schedule of the pipeline is suspended; they are declared meanwhile."""
    schedules = client.get(f"{stack.url('jobs')}/schedules").json()["schedules"]
    return [s["suspended"] for s in schedules if s["name"].startswith("packhorse.pipeline.")]


def ready(stack: ComposedStack, name: str) -> bool:
    """Return what its health check asks. Raises `RuntimeError` when the service has ended."""
    if not stack.running(name):
        raise RuntimeError(stack.said())
    return is_ready(stack.url(name))


def distribute(client: httpx.Client, stack: ComposedStack) -> None:
    """Write a node at the author and wait until every subscriber serves it."""
    node = {"type": "page", "properties": {"title": "Composed"}}
    client.put(f"{stack.url('content')}/content/site", json=node).raise_for_status()
    request = {"action": "ADD", "paths": ["/site"]}
    client.post(f"{stack.url('publisher')}/distribute", json=request).raise_for_status()
    for name in SUBSCRIBERS:
        url = f"{stack.url(name)}/content/site"
        eventually(lambda url=url: client.get(url).is_success, what=f"{name} has /site")
        assert client.get(url).json()["properties"] == node["properties"]


def test_every_program_of_the_file_is_started_by_this_test() -> None:
    services = compose()["services"].items()
    ours = {name for name, one in services if is_ours(one) and "profiles" not in one}
    assert ours == {*PROGRAMS, "topics", "secrets"}
