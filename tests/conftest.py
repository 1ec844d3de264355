"""The few fixtures that everybody uses."""

import gc
import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from logging import Logger
from pathlib import Path
from typing import Any

import pytest
from _pytest import tmpdir
from httpx._transports import default as httpx_transports
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling, Scheduling

from packhorse.messaging.kafka import inquiry, provision
from packhorse.messaging.kafka import journal as kafka_journal
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness import proofs, scratch
from tests.harness.compiled import compile_share
from tests.harness.depth import examples
from tests.harness.journals import DEADLINE_S
from tests.harness.kafka.broker import RunningKafka, running_kafka
from tests.harness.postgres import Databases, running_postgres
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server, running_s3

_SPARK_TIMEOUT_S = 1_800
"""Spark does little work at great cost, and more so beside three other workers on two cores."""

_SPARK = Path(__file__).parent / "spark"
"""The folder of those that share a session."""

_BROKER = pytest.StashKey[RunningKafka]()
_ASK_FOR_IT = ("kafka", "spark")
"""The groups whose tests ask for a broker; the worker that has one starts its own."""


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker of a parallel run ports of its own: who is given one listens only later."""
    scratch.use_memory()
    compile_share(config)
    _load_certificates_once()
    tmpdir.rmtree = scratch.remove
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = 20_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = 10_000 + each * worker
    os.environ["PACKHORSE_PORTS"] = f"{first}-{first + each - 1}"
    # How fast examples are made says how busy the machine is, not whether the product is right.
    settings.register_profile(
        "untimed",
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("untimed")


def _load_certificates_once() -> None:
    """Let all clients of httpx share what they trust: to load it costs each of them 22 ms."""
    httpx_transports.create_ssl_context = cache(httpx_transports.create_ssl_context)  # type: ignore[attr-defined]


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
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Let the longest groups begin first: the others end beside them."""
    if item.path.is_relative_to(_SPARK):
        return 0
    return 1 if item.get_closest_marker("spark") else 2


def pytest_collection_finish() -> None:
    """Let no collection look through what was imported and collected: all of it stays."""
    gc.freeze()


class WhatIsStartedOnce(LoadFileScheduling):
    """Gives one worker all that shares a `packhorse up`, a site, a broker, the clients or Spark.

    A stack has twelve programs to start, a site four, and the clients' programs run on Java and on
    Node.js; a broker takes 3 % of a core while it does nothing, and a JVM compiles what it runs.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _shared(self.config.rootpath, nodeid)


def _shared(root: Path, nodeid: str) -> str:
    """Return what a test has in common with others: something costly, or its file."""
    file, _, _ = nodeid.partition("::")
    if (root / file).is_relative_to(_SPARK):
        return "spark"
    text = _text(root / file)
    if re.search(r"\bup: Up\b", text):
        return "up"
    if file.startswith("tests/e2e/") and re.search(r"\brunning: Site\b", text):
        return "site"
    if file.startswith("tests/contract/client/"):
        return "clients"
    asks = r"\bkafka: RunningKafka[,)]"
    return "kafka" if re.search(r"\[(.*-)?kafka", nodeid) or re.search(asks, text) else file


@cache
def _text(file: Path) -> str:
    return file.read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Distribute by file, but for what has something costly in common."""
    return WhatIsStartedOnce(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Give the loggers their handlers, filters and levels back: a program here configures them."""
    known = (one for one in logging.root.manager.loggerDict.values() if isinstance(one, Logger))
    before = {one: (one.handlers[:], one.filters[:], one.level) for one in (logging.root, *known)}
    yield
    for one, (handlers, filters, level) in before.items():
        one.handlers[:], one.filters[:] = handlers, filters
        if one.level != level:
            one.setLevel(level)


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
def kafka(request: pytest.FixtureRequest) -> Iterator[RunningKafka]:
    """A real Kafka broker for the whole session; each test takes topics of its own.

    A question to it waits, as it may be slow; who lets it be away waits a shorter time.
    """
    with pytest.MonkeyPatch.context() as patched, running_kafka() as broker:
        for module in (inquiry, kafka_journal, provision):
            patched.setattr(module, "ANSWER_SECONDS", DEADLINE_S)
        request.session.stash[_BROKER] = broker
        yield broker


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the broker again where a test asks for it behind the end of its group."""
    broker = item.session.stash.get(_BROKER, None)
    if broker and not broker.running and _shared(item.config.rootpath, item.nodeid) in _ASK_FOR_IT:
        broker.start()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the broker behind the group that shares it, on the one worker that has the group."""
    broker = item.session.stash.get(_BROKER, None)
    if broker and broker.running and nextitem and "PYTEST_XDIST_WORKER" in os.environ:
        now, then = (_shared(item.config.rootpath, one.nodeid) for one in (item, nextitem))
        if now in _ASK_FOR_IT and then not in _ASK_FOR_IT:
            broker.discard()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the whole session, its credentials in the environment."""
    with pytest.MonkeyPatch.context() as environment, running_s3() as server:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield server
