"""The product's schedules: docs/operations/jobs.md has all that programs declare, as they are."""

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.db.transactions import Connect
from packhorse.jobs import host
from packhorse.jobs.declaring import Declarations, Declared
from packhorse.jobs.scheduling.definition import ScheduleDefinition
from packhorse.jobs.scheduling.timing import Every
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.pipeline import worker as pipeline
from packhorse_services.publisher.app import Backends, publisher
from packhorse_services.publisher.settings import Settings
from tests.harness.openapi import NOWHERE, SERVICES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations" / "jobs.md"
MADE_IN = {
    *("cleanup/runner.py", "jobs/housekeeping.py", "pipeline/worker.py"),
    "publisher/assembly/maintenance.py",
}
"""Modules with schedules of the product; each is declared by one of the services below."""


@pytest.fixture
def declared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, list[ScheduleDefinition]]:
    """What the programs declare when they are put together, by service."""
    found: dict[str, list[ScheduleDefinition]] = {}
    current = ""

    class Noted(Declarations):
        def __init__(self, connect: Connect, declared: Declared) -> None:
            found.setdefault(current, []).extend(declared.schedules)
            super().__init__(connect, declared)

    monkeypatch.setattr(host, "Declarations", Noted)
    for current in ("cleanup", "jobs"):
        SERVICES[current](str(tmp_path))
    current = "publisher"
    _publisher(tmp_path)
    current = "pipeline worker"
    pipeline.host_of(NOWHERE, None)
    return found


def _publisher(folder: Path) -> None:
    cluster = join(NOWHERE, TopologyConfiguration(instance_id="p"), InstanceProperties("publisher"))
    journal = open_journal("memory://schedules", client_name="tests")
    blobs = open_blobs(str(folder))
    backends = Backends(journal, blobs, Authenticator.off(), SystemClock(), cluster)
    made = publisher(Settings.model_validate({"database_url": NOWHERE, "agent": "AGENT"}), backends)
    for component in made.components:
        component.stop(5)


def documented() -> dict[str, tuple[str, str]]:
    """Return of each schedule the service, and how often it fires."""
    found = {}
    for names, service, what in re.findall(
        r"^\| (`packhorse\.[^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE
    ):
        listed = re.findall(r"`([^`]*)`", names)
        prefix = listed[0].rpartition(".")[0]
        full = [prefix + one if one.startswith(".") else one for one in listed]
        times = what.rpartition("; ")[2].split(", ")
        for name, often in zip(full, times if len(times) > 1 else times * len(full), strict=True):
            found[name] = (service, often)
    return found


def often(schedule: ScheduleDefinition) -> str:
    """Return how often it fires, in the words of the page."""
    if schedule.suspended:
        return "suspended until you resume them"
    assert isinstance(schedule.when, Every)
    number, unit = schedule.when.period // timedelta(minutes=1), "minute"
    if number % 60 == 0:
        number, unit = number // 60, "hour"
    return f"{number} {unit}{'' if number == 1 else 's'}"


def test_the_page_has_every_schedule_of_the_product_and_how_often_it_fires(
    declared: dict[str, list[ScheduleDefinition]],
) -> None:
    found = {one.name: (service, often(one)) for service, all_ in declared.items() for one in all_}
    assert documented() == found
    assert all(name.startswith("packhorse.") for name in found)


def test_no_other_module_of_the_services_makes_schedules() -> None:
    services = ROOT / "services" / "packhorse_services"
    making = {
        str(path.relative_to(services))
        for path in services.rglob("*.py")
        if "ScheduleDefinition(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ScheduleDefinition"
    }
    assert making == MADE_IN
