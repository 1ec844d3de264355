"""The deployment files against the programs: commands, variables, values and paths are real."""

import asyncio
import os
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from pydantic_settings import BaseSettings

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.readiness import Readiness
from packhorse_services.cli.app import app as command_line
from tests.harness.deployment import ROOT, Container, containers, image_environment

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
ALL = [container for container in containers() if container.command[0] != "sh"]
PROGRAMS = [c for c in ALL if c.command[0] != "packhorse"]
COMMANDS = [c for c in ALL if c.command[0] == "packhorse"]

SECRETS = {
    "PACKHORSE_SUBSCRIBER_DATABASES_FILE": '{"sub1": "postgresql://…"}',
    "PACKHORSE_HOOKS_FILE": "{}",
}


def where(container: Container) -> str:
    return container.where


def settings_of(container: Container) -> list[type[BaseSettings]]:
    """Return what reads the variables: a worker reads some, and the tasks that it starts."""
    service = SCRIPTS[container.command[0]].rpartition(".")[0]
    module = import_module(f"{service}.settings")
    worker = [module.PipelineWorkerSettings] if "worker" in container.command else []
    return [module.Settings, *worker]


def variables_of(model: Any) -> set[str]:
    return {f"PACKHORSE_{name.upper()}" for name in model.model_fields}


@pytest.fixture
def environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Container:
    """The container's variables as ours; each secret file is there and holds something."""
    container: Container = request.param
    for name, value in container.environment.items():
        monkeypatch.setenv(name, value)
        if name.endswith("_FILE"):
            secret = tmp_path / name
            secret.write_text(SECRETS.get(name, "postgresql://packhorse:secret@postgres:5432/a"))
            secret.chmod(0o600)
            monkeypatch.setenv(name, str(secret))
    return container


def test_every_program_is_deployed() -> None:
    assert {container.command[0] for container in ALL} == set(SCRIPTS)


@pytest.mark.parametrize("container", ALL, ids=where)
def test_every_command_is_a_program(container: Container) -> None:
    module, _, function = SCRIPTS[container.command[0]].partition(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_program_is_installed(name: str) -> None:
    """Most tests begin what a program calls, not the program."""
    script = Path(sys.executable).with_name(name)
    module, _, function = SCRIPTS[name].partition(":")
    assert os.access(script, os.X_OK)
    assert f"from {module} import {function}\n" in script.read_text()


@pytest.mark.parametrize("container", PROGRAMS, ids=where)
def test_every_variable_is_a_setting_of_its_program(container: Container) -> None:
    read = [variables_of(model) for model in settings_of(container)]
    assert set(container.settings) <= set.union(*read)


@pytest.mark.parametrize("environment", PROGRAMS, ids=where, indirect=True)
def test_every_value_is_one_that_its_program_takes(environment: Container) -> None:
    for model in settings_of(environment):
        model()


@pytest.mark.parametrize("container", COMMANDS, ids=where)
def test_every_command_of_the_command_line_takes_its_variables(container: Container) -> None:
    command: Any = typer.main.get_command(command_line)
    for name in container.command[1:]:
        command = command.commands[name]
    taken = {parameter.envvar for parameter in command.params}
    assert set(container.settings) - set(image_environment()) <= taken


def test_the_image_sets_what_every_program_has() -> None:
    own = {name for name in image_environment() if name.startswith("PACKHORSE_")}
    assert own <= variables_of(ProcessConfiguration)


def test_every_path_that_is_probed_is_served_to_everybody() -> None:
    probed = {path for container in PROGRAMS for path in container.probes}
    assert probed == {"/livez", "/readyz", "/startupz"}
    assert {path: asyncio.run(answer(path)) for path in probed} == dict.fromkeys(probed, 200)


def test_metrics_are_served_to_those_with_a_token_as_the_service_monitor_has_one() -> None:
    assert asyncio.run(answer("/metrics")) == 401


async def answer(path: str) -> int:
    app = create_app(ServiceDescription("t", "d"), Authenticator(Nobody()), Readiness({}))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.get(path)).status_code


class Nobody:
    """Tokens of which none is valid."""

    async def principal(self, token: str) -> None:
        return None
