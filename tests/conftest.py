"""The few fixtures that everybody uses."""

import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling, Scheduling
from xdist.workermanage import WorkerController

from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness import proofs
from tests.harness.kafka.broker import RunningKafka, running_kafka
from tests.harness.postgres import Databases, running_postgres
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server, running_s3
from tests.harness.scratch import use_memory

_SPARK_TIMEOUT_S = 1_800
"""Spark does little work at great cost, and more so beside two other workers on two cores."""


def pytest_configure() -> None:
    """Give each worker of a parallel run ports of its own: who is given one listens only later."""
    use_memory()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = 20_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = 10_000 + each * worker
    os.environ["PACKHORSE_PORTS"] = f"{first}-{first + each - 1}"
    # How fast examples are made says how busy the machine is, not whether the product is right.
    settings.register_profile(
        "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the gate leave out the proofs that the change does not ask for."""
    parser.addoption(
        "--proofs",
        choices=("all", "changed"),
        default="all",
        help="which tests marked `proof` to run: those that differ from the main branch, or all",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out proofs that nobody asks for, and give tests with Spark the time they need."""
    if config.getoption("proofs") == "changed":
        left_out = [one for one in items if one.get_closest_marker("proof")]
        left_out = [one for one in left_out if not proofs.is_asked_for(one.path)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [one for one in items if one not in left_out]
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))


_SPARK_WORKERS = 2


class FilesByNeed(LoadFileScheduling):
    """Gives one worker all files that share a `packhorse up`: it has twelve programs to start.

    The first two workers begin with the files of Spark, a session of which takes 1.5 GB and long
    to start; the other workers do none of them, and end when nothing else is left.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "up" if _says(self.config.rootpath / file, r"\bup: Up\b") else file

    def _next_for(self, node: WorkerController) -> str | None:
        runs_spark = node in self.nodes[:_SPARK_WORKERS]
        sparks = (one for one in self.workqueue if self._needs_spark(one))
        others = (one for one in self.workqueue if not self._needs_spark(one))
        return next(chain(sparks, others) if runs_spark else others, None)

    def _needs_spark(self, scope: str) -> bool:
        return scope != "up" and _says(self.config.rootpath / scope, r"\bmark\.spark\b")

    def _reschedule(self, node: WorkerController) -> None:
        if not node.shutting_down and self._next_for(node) is None:
            node.shutdown()
        super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if scope := self._next_for(node):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


@cache
def _says(file: Path, pattern: str) -> bool:
    return re.search(pattern, file.read_text()) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Distribute by file, with the costly things that files need in mind."""
    return FilesByNeed(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A real server for the whole session."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def lasting_databases(postgres: EmbeddedPostgres) -> Databases:
    """Databases on that server for what several files share."""
    return Databases(postgres)


@pytest.fixture(scope="module")
def databases(postgres: EmbeddedPostgres) -> Iterator[Databases]:
    """Fresh databases on that server, which end with the file that made them."""
    made = Databases(postgres)
    yield made
    made.drop()


@pytest.fixture
def database_url(databases: Databases) -> str:
    """A migrated, empty database of the test's own."""
    return databases.new()


@pytest.fixture(scope="session")
def kafka() -> Iterator[RunningKafka]:
    """A real Kafka broker for the whole session; each test takes topics of its own."""
    with running_kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the whole session, its credentials in the environment."""
    with pytest.MonkeyPatch.context() as environment, running_s3() as server:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield server
