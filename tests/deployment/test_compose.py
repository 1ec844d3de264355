"""The compose file and what it mounts, checked without an engine."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse.runtime.token_file import TokenFile
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.layout import connections
from tests.harness.composed import composed_secrets, prepared_postgres
from tests.harness.deployment import (
    COMPOSE,
    IMAGES,
    ROOT,
    compose,
    image_environment,
    is_ours,
)

STACK = compose()
SERVICES: dict[str, dict[str, Any]] = STACK["services"]


def test_it_is_a_compose_file() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, COMPOSE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_name_dangles() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        assert {v.split(":")[0] for v in service.get("volumes", [])} <= set(STACK["volumes"])
        assert {c["source"] for c in service.get("configs", [])} <= set(STACK["configs"])
    for config in STACK["configs"].values():
        assert (ROOT / config["file"]).is_file()


def test_every_condition_can_come_true() -> None:
    for name, service in SERVICES.items():
        for other, wish in service.get("depends_on", {}).items():
            target = SERVICES[other]
            checked = not target.get("healthcheck", {"disable": True}).get("disable", False)
            ends = target["restart"] == "on-failure"
            possible = {
                "service_healthy": checked,
                "service_completed_successfully": ends,
            }
            assert possible[wish["condition"]], f"{name} waits for {other} in vain"


def test_nothing_waits_for_itself() -> None:
    waiting = {name: set(s.get("depends_on", {})) for name, s in SERVICES.items()}
    while ready := {name for name, others in waiting.items() if not others}:
        waiting = {n: others - ready for n, others in waiting.items() if n not in ready}
    assert not waiting


def test_everything_that_stays_has_a_health_check() -> None:
    for name, service in SERVICES.items():
        stays = service["restart"] == "unless-stopped"
        assert stays == ("test" in service["healthcheck"]), name


def test_our_programs_have_the_same_health_check() -> None:
    checks = [s["healthcheck"] for s in SERVICES.values() if is_ours(s)]
    assert len({tuple(check["test"]) for check in checks if "test" in check}) == 1


def test_images_are_plain_names_with_a_version() -> None:
    for service in SERVICES.values():
        name, _, tag = service["image"].partition(":")
        assert "." not in name, "no registry"
        assert name in IMAGES or re.match(r"v?\d", tag), service["image"]


def test_ports_are_open_to_this_machine_only_and_each_once() -> None:
    published = [port for s in SERVICES.values() for port in s.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") and port.endswith(":8080") for port in published)
    assert len(published) == len(set(published))
    assert image_environment()["PACKHORSE_PORT"] == "8080"


def test_our_containers_have_no_rights_and_write_to_tmp_only() -> None:
    for name, service in SERVICES.items():
        if is_ours(service):
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            writable = [v for v in service["volumes"] if not v.endswith(":ro")]
            assert bool(writable) == (name == "secrets")


def test_every_address_is_a_service_and_its_port() -> None:
    listened = {"kafka": {9092, 9093}, "postgres": {5432}, "s3": {7070}}
    text = COMPOSE.read_text() + (ROOT / "services/compose/secrets.sh").read_text()
    addresses = re.findall(r"(?:://|@)([a-z]\w*):(\d+)\b", text)
    assert {host for host, _ in addresses} >= set(listened)
    for host, port in addresses:
        assert host in SERVICES
        assert int(port) in listened.get(host, {8080})


def test_the_server_takes_the_connections_of_all_programs() -> None:
    found = re.search(r"max_connections=(\d+)", " ".join(SERVICES["postgres"]["command"]))
    assert found
    subscribers = sum("PACKHORSE_SUBSCRIBER" in s.get("environment", {}) for s in SERVICES.values())
    assert int(found.group(1)) >= connections(StackOptions(data=ROOT, subscribers=subscribers))


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return composed_secrets(tmp_path_factory.mktemp("secrets"))


def test_secrets_are_made_once_and_are_their_owners_only(secrets: Path) -> None:
    before = {file.name: file.read_bytes() for file in secrets.iterdir()}
    composed_secrets(secrets)
    assert {file.name: file.read_bytes() for file in secrets.iterdir()} == before
    assert {file.stat().st_mode & 0o777 for file in secrets.iterdir()} == {0o600}
    assert len(before["postgres-password"]) >= 24


def test_every_secret_file_that_compose_names_is_made(secrets: Path) -> None:
    made = {f"/var/lib/packhorse/{file.name}" for file in secrets.iterdir()}
    made |= {path.replace("/var/lib", "/run") for path in made}
    for service in SERVICES.values():
        variables = service.get("environment", {}).items()
        assert {value for name, value in variables if name.endswith("_FILE")} <= made


def test_the_first_token_opens_everything(secrets: Path) -> None:
    tokens = secrets / "tokens"
    token = re.search(r'"token": "([^"]+)"', tokens.read_text())
    assert token
    principal = asyncio.run(TokenFile(tokens).principal(token.group(1)))
    assert principal is not None
    assert principal.may("admin")


@pytest.fixture(scope="module")
def server(secrets: Path) -> Iterator[EmbeddedPostgres]:
    """A server that had its first start as compose gives it."""
    with prepared_postgres(secrets) as postgres:
        yield postgres


@pytest.fixture(scope="module")
def databases(server: EmbeddedPostgres, secrets: Path) -> dict[str, str]:
    """The URL that the programs are given for each database of that server."""
    reported = [file.read_text() for file in secrets.glob("*-database-url")]
    here = f"127.0.0.1:{server.port}"
    return {urlsplit(url).path[1:]: url.replace("postgres:5432", here) for url in reported}


def test_the_programs_login_for_each_database_is_no_superuser(databases: dict[str, str]) -> None:
    assert set(databases) == {"author", "sub1", "sub2", "sub3"}
    for url in databases.values():
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
        assert row == (False,)


def test_nobody_reaches_the_superuser_over_the_network(server: EmbeddedPostgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url())
