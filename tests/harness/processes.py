"""The programs as real processes, each of which a test may kill, pause and start again.

`Programs` starts them one by one, with nobody who restarts them behind the test's back.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from packhorse.client.addresses import read_token
from packhorse.runtime import leash
from packhorse.runtime.token_file import ensure_token_file
from packhorse_services.cli.stack.ports import free_port
from tests.harness import imported
from tests.harness.waiting import eventually, pause

READY_S = 180.0
_NOT_NOW = ("connection timeout expired", "; try again")
"""What a program says last that ends because its database or Kafka has not answered for 5 s."""


class Process:
    """One program. What it says on stderr goes on in one file over all its lives."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name, self.command, self.environment = name, tuple(command), dict(environment)
        self.log, self.output = folder / f"{name}.log", folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | imported.Imported | None = None

    @property
    def pid(self) -> int:
        """The id of the process that runs now, or ran last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, stopped: bool = False) -> None:
        """Start it, without waiting.

        `stopped` it waits for `resume` before it does anything, as one has to whom a tracer comes.
        """
        assert not self.running, f"{self.name} runs already"
        environment = {**os.environ, **self.environment}
        with self.log.open("ab") as log, self.output.open("wb") as output:
            if imported.can_begin(self.command, self.environment):
                self._process = imported.begin(
                    self.command, environment, output, log, stopped=stopped
                )
                return
            assert not stopped, "only what is a fork can begin stopped"
            self._process = subprocess.Popen(
                [*leash.on_leash(), *self.command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it with SIGKILL, in whatever it is doing, and its children with it."""
        self._signal_group(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """Stop it: connections stay open, nothing answers."""
        self._signal_group(signal.SIGSTOP)
        if self.running:
            pause(self.pid)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_group(signal.SIGCONT)

    def stop(self, timeout: float = 180.0) -> int:
        """End it as its operator would; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float = 180.0) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def said(self, count: int = 40) -> str:
        """Return the last lines of its output."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return f"{self.name}:\n" + "\n".join(lines[-count:])

    def lines(self) -> list[str]:
        """Return the lines of its standard output so far, each of them whole."""
        return self.output.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.running:
            os.killpg(self.pid, number)


class Program(Process):
    """A program that serves HTTP on a port that stays the same over its lives."""

    def __init__(
        self, name: str, service: str, environment: Mapping[str, str], folder: Path
    ) -> None:
        port = free_port()
        super().__init__(
            name,
            (sys.executable, "-m", f"packhorse_services.{service}"),
            {**environment, "PACKHORSE_PORT": str(port)},
            folder,
        )
        self.url = f"http://127.0.0.1:{port}"

    def ready(self, timeout: float = READY_S) -> "Program":
        """Wait until it can work, and return it."""

        def answers() -> bool:
            self.supervise()
            if not self.running:  # waiting does not help any more
                raise RuntimeError(self.said())
            return is_ready(self.url)

        eventually(answers, timeout=timeout, what=f"{self.name} ready\n{self.said()}")
        return self

    def supervise(self) -> None:
        """Start it again, as its supervisor does, where what it needs was too busy to answer."""
        if not self.running and any(one in self.said(1) for one in _NOT_NOW):
            self.start()

    def restart(self) -> None:
        """End it cleanly and start it again."""
        self.stop()
        self.start()
        self.ready()


class Programs:
    """The programs of one test: one journal, one blob store, a database for each that asks."""

    def __init__(self, folder: Path, journal_url: str, **settings: Any) -> None:
        self.folder = folder
        self.all: list[Program] = []
        self.tokens = folder / "tokens.json"
        ensure_token_file(self.tokens)
        self.token = read_token(self.tokens)
        self._settings = {
            "host": "127.0.0.1",
            "journal_url": journal_url,
            "blobs_url": str(folder / "blobs"),
            "token_file": self.tokens,
            **settings,
        }

    def publisher(self, database_url: str, agent: str = "main", **settings: Any) -> Program:
        """Return a publisher, not started."""
        return self._program(agent, "publisher", database_url, agent=agent, **settings)

    def content(self, database_url: str, **settings: Any) -> Program:
        """Return a content API, not started."""
        return self._program("content", "content", database_url, **settings)

    def subscriber(self, name: str, database_url: str, **settings: Any) -> Program:
        """Return a subscriber, not started."""
        return self._program(name, "subscriber", database_url, subscriber=name, **settings)

    def cleanup(self, database_url: str, **settings: Any) -> Program:
        """Return a cleanup service, not started."""
        return self._program("cleanup", "cleanup", database_url, **settings)

    def topology(self, database_url: str, **settings: Any) -> Program:
        """Return a topology service, not started."""
        return self._program("topology", "topology", database_url, **settings)

    def jobs(self, database_url: str, **settings: Any) -> Program:
        """Return a jobs service, not started."""
        return self._program("jobs", "jobs", database_url, **settings)

    def console(self, publisher: Program, **settings: Any) -> Program:
        """Return a console of a publisher of the agent `main`, not started."""
        urls = json.dumps({"main": publisher.url})
        return self._program("console", "console", "", publisher_urls=urls, **settings)

    def reports(self, **settings: Any) -> Program:
        """Return the pipeline's service of reports, not started; its tables are in our folder."""
        tables = {"tables_url": str(self.folder / "tables"), **settings}
        service = self._program("reports", "pipeline", "", **tables)
        service.command = (*service.command, "serve")
        return service

    def start(self) -> None:
        """Start all that do not run, and wait until they are ready."""
        for service in self.all:
            if not service.running:
                service.start()
        for service in self.all:
            service.ready()

    def _program(self, name: str, service: str, database_url: str, **settings: Any) -> Program:
        merged = {**self._settings, "database_url": database_url, **settings}
        environment = {f"PACKHORSE_{key.upper()}": _text(value) for key, value in merged.items()}
        replicas = sum(other.name.partition("#")[0] == name for other in self.all)
        made = Program(
            f"{name}#{replicas}" if replicas else name, service, environment, self.folder
        )
        self.all.append(made)
        return made


@contextmanager
def running_programs(journal_url: str, **settings: Any) -> Iterator[Programs]:
    """Give an empty set of programs; whatever was started of it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-programs-"))
    made = Programs(folder, journal_url, **settings)
    try:
        yield made
    finally:
        for service in made.all:
            if service.running:
                service.kill()
        shutil.rmtree(folder, ignore_errors=True)


def is_ready(url: str) -> bool:
    """Return whether the program that serves there can work."""
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


def first_lines(process: Process, count: int) -> list[str]:
    """Wait until it has written so many lines, and return them."""

    def written() -> list[str]:
        lines = process.lines()
        assert len(lines) >= count, process.said()
        return lines[:count]

    return eventually(written, timeout=READY_S, what=f"{count} lines of {process.name}")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
