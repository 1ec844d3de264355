"""One Kafka broker as a child process, which tests may stop, kill, pause and start again."""

import base64
import json
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from packhorse.runtime import leash
from packhorse_services.cli.stack.ports import free_port, is_free
from tests.harness.kafka import runtime
from tests.harness.waiting import pause

_HERE = Path(__file__).parent
_START_SECONDS = 120.0
_STOP_SECONDS = 180.0


@dataclass
class RunningKafka:
    """A broker whose data and ports stay the same over every restart in `home`."""

    home: Path
    port: int = 0
    secured_port: int = field(default=0, init=False)
    """Where clients log in, and may do what ACLs allow."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        """The broker's address as Kafka clients want it."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process was started and not ended by us."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of the broker that runs now."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def url(self) -> str:
        """The journal's URL."""
        return f"kafka://{self.bootstrap}"

    def start(self) -> None:
        """Start the broker and return once it answers; data of an earlier run is kept.

        The broker ends with the thread that starts it, so that no killed run leaves one behind.
        """
        assert self._process is None, "the broker runs already"
        self.home.mkdir(parents=True, exist_ok=True)
        self._configure()
        if not is_free(self.port):
            raise runtime.BrokerUnavailable(
                f"port {self.port} is taken; does a broker run on {self.home} already?"
            )
        if not (self.home / "data" / "meta.properties").exists():
            self._format()
        self._process = self._java("kafka.Kafka", *self._archive_options())
        self._wait_until_it_answers()

    def stop(self) -> None:
        """End the broker as its operator would, and wait for it."""
        self._end(signal.SIGTERM)
        fresh = self.home / "fresh.jsa"
        if fresh.exists():  # the JVM wrote it when it ended
            shutil.move(fresh, self._archive())

    def discard(self) -> None:
        """End the broker for good in the cheapest way that leaves the archive of its classes."""
        if self._archive().exists():
            self.kill()
        else:
            self.stop()

    def kill(self) -> None:
        """End the broker with SIGKILL, in whatever it is doing."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the broker's every thread: connections stay open, nothing answers."""
        assert self._process is not None, "the broker does not run"
        pause(self._process.pid)

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker does not run"
        self._process.send_signal(number)
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process = self._signal(number)
        process.send_signal(signal.SIGCONT)
        process.wait(_STOP_SECONDS)
        self._process = None

    def _configure(self) -> None:
        ports = self.home / "ports.json"
        chosen: dict[str, int] = json.loads(ports.read_text()) if ports.exists() else {}
        for name, fixed in (("port", self.port), ("controller_port", 0), ("secured_port", 0)):
            chosen[name] = chosen.get(name) or fixed or free_port()
        ports.write_text(json.dumps(chosen))
        self.port, self.secured_port = chosen["port"], chosen["secured_port"]
        template = Template((_HERE / "server.properties").read_text())
        settings = template.substitute(chosen, data=self.home / "data")
        (self.home / "server.properties").write_text(settings)

    def _format(self) -> None:
        """Copy data that the tool has formatted once for these jars, and give them ids."""
        kept = runtime.jars().with_name(f"{runtime.jars().name}.formatted")
        if not kept.exists():
            self._let_format(kept)
        shutil.copytree(kept, self.home / "data", dirs_exist_ok=True)
        ids = {"version": "1", "node.id": "1", "cluster.id": _uuid(), "directory.id": _uuid()}
        lines = (f"{name}={value}\n" for name, value in ids.items())
        (self.home / "data" / "meta.properties").write_text("".join(lines))

    def _let_format(self, kept: Path) -> None:
        """Start a JVM for it, and keep what does not differ from one broker to the next."""
        tool = ("kafka.tools.StorageTool", "format", "-t", _uuid(), "--ignore-formatted")
        if self._java(*tool, "-c").wait(_START_SECONDS) != 0:
            raise runtime.BrokerUnavailable(f"the broker's data can't be formatted:{self._said()}")
        (self.home / "data" / "meta.properties").unlink()
        fresh = kept.with_name(f"{kept.name}-{_uuid()}")
        shutil.move(self.home / "data", fresh)
        try:
            fresh.rename(kept)
        except OSError:  # another run was quicker
            shutil.rmtree(fresh)

    def _java(self, main: str, *options: str) -> subprocess.Popen[bytes]:
        """Run a class of the jars: options that begin with -X are the JVM's, others its own."""
        java, _ = runtime.java()
        machine = [option for option in options if option.startswith("-X")]
        program = [option for option in options if not option.startswith("-X")]
        command = [
            *leash.on_leash(),
            *(java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *machine),
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
            f"-Dpackhorse.kafka.log={self.home / 'broker.log'}",
            *("-cp", f"{runtime.jars()}/*", main, *program, self.home / "server.properties"),
        ]
        with (self.home / "console.log").open("ab") as console:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, cwd=self.home,
                start_new_session=True,
            )  # fmt: skip

    def _archive(self) -> Path:
        _, version = runtime.java()
        return runtime.jars().with_name(f"{runtime.jars().name}.java{version}.jsa")

    def _archive_options(self) -> tuple[str, ...]:
        """Share loaded classes between runs: a third of the start's time."""
        if self._archive().exists():
            return (f"-XX:SharedArchiveFile={self._archive()}", "-Xshare:auto", "-Xlog:disable")
        return (f"-XX:ArchiveClassesAtExit={self.home / 'fresh.jsa'}", "-Xlog:disable")

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                raise runtime.BrokerUnavailable(f"the broker ended at once:{self._said()}")
            try:
                client.list_topics(timeout=1)
            except KafkaException:
                continue
            return
        raise runtime.BrokerUnavailable(f"the broker does not answer:{self._said()}")

    def _said(self) -> str:
        logs = (self.home / "broker.log", self.home / "console.log")
        return "".join(f"\n{log.read_text()[-2000:]}" for log in logs if log.exists())


def _uuid() -> str:
    """Return an id as Kafka writes them; one that begins with - its tools take for an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return f"A{text[1:]}" if text.startswith("-") else text


@contextmanager
def running_kafka() -> Iterator[RunningKafka]:
    """Start a broker with data of its own; end it and remove the data afterwards."""
    broker = RunningKafka(Path(tempfile.mkdtemp(prefix="packhorse-test-kafka-")))
    try:
        broker.start()
        yield broker
    finally:
        if broker.running:
            broker.discard()
        shutil.rmtree(broker.home, ignore_errors=True)
