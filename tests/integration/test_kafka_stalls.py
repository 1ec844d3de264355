"""A broker that stalls, and goes on, ends no program (R33; ADR 0050)."""

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from packhorse.messaging.open import open_journal
from tests.harness.journals import create
from tests.harness.kafka.broker import RunningKafka

_METADATA, _API_VERSIONS = 3, 18
_UNSUPPORTED_VERSION = 35


@dataclass
class FencedBroker:
    """A broker that names itself in its metadata until `fence` is called, as its controller may do.

    That is how one that goes on after a stall may answer. It speaks as much of Kafka's protocol as
    it takes for a client to connect and to ask for metadata.
    """

    listener: socket.socket
    fenced: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def fence(self) -> None:
        self.fenced.set()

    def accept(self) -> None:
        """Serve whoever connects, until the listener is closed."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # whoever has enough may reset the connection
            while head := connection.recv(4, socket.MSG_WAITALL):
                (length,) = struct.unpack(">i", head)
                request = connection.recv(length, socket.MSG_WAITALL)
                answer = self._answer(request)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, request: bytes) -> bytes:
        api, version, correlation = struct.unpack(">hhi", request[:8])
        head = struct.pack(">i", correlation)
        if api == _API_VERSIONS:
            error = _UNSUPPORTED_VERSION if version else 0
            versions = struct.pack(">hhhhhh", _METADATA, 0, 4, _API_VERSIONS, 0, 0)
            return head + struct.pack(">hi", error, 2) + versions
        assert api == _METADATA, f"a request of kind {api}"
        return head + self._metadata(request)

    def _metadata(self, request: bytes) -> bytes:
        """Return the answer of version 4: brokers, cluster, controller, the topics asked for."""
        here = self.fenced.is_set()
        itself = struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        brokers = struct.pack(">i", 0) if here else struct.pack(">i", 1) + itself
        topics = b"".join(_topic(name, -1 if here else 1) for name in _requested(request))
        count = struct.pack(">i", len(_requested(request)))
        return (
            struct.pack(">i", 0)
            + brokers
            + _text("cluster")
            + count.join((struct.pack(">i", 1), topics))
        )


def _requested(request: bytes) -> list[str]:
    (client_id,) = struct.unpack(">h", request[8:10])
    at = 10 + max(client_id, 0)
    (count,) = struct.unpack(">i", request[at : at + 4])
    names, at = [], at + 4
    for _ in range(max(count, 0)):
        (length,) = struct.unpack(">h", request[at : at + 2])
        names.append(request[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return names


def _topic(name: str, leader: int) -> bytes:
    partition = struct.pack(">hiiiiii", 0, 0, leader, 1, 1, 1, 1)
    return struct.pack(">h", 0) + _text(name) + b"\0" + struct.pack(">i", 1) + partition


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


@contextmanager
def fenced_broker() -> Iterator[FencedBroker]:
    """Run one for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = FencedBroker(listener)
        threading.Thread(target=broker.accept, daemon=True).start()
        yield broker
        listener.shutdown(socket.SHUT_RDWR)


pytestmark = pytest.mark.kafka

_ASK = """
import sys
from packhorse.errors import PackhorseError
from packhorse.messaging.open import open_journal
journal = open_journal(sys.argv[1], client_name="stalls")
print(journal.identity("topic").partition("/")[0], flush=True)
for _ in sys.stdin:
    for ask in (journal.identity, journal.partitions):
        try:
            ask("topic")
        except PackhorseError as error:
            print("error:", error, file=sys.stderr)
    print("alive", flush=True)
"""
_STALLS_S = (1.0, 5.5, 6.0)
"""Shorter than the limit of a question, and around it: answers come late, or just in time."""


def test_r33_metadata_without_a_broker_end_no_program() -> None:
    """librdkafka's describe_cluster aborts the process there."""
    with fenced_broker() as broker, running([sys.executable, "-c", _ASK, broker.url]) as program:
        assert said(program) == "cluster"
        broker.fence()
        for _ in range(2):
            assert said(program, "ask") == "alive"


def test_r33_a_broker_that_is_paused_and_goes_on_ends_no_program(kafka: RunningKafka) -> None:
    journal = open_journal(kafka.url, client_name="stalls")
    topic = create(journal)
    journal.close()
    command = [sys.executable, "-m", "tests.integration.kafka_asking", kafka.url, topic]
    with running(command) as program:
        assert said(program) == "ready"
        for seconds in _STALLS_S:
            kafka.pause()
            try:
                time.sleep(seconds)  # the fault itself
            finally:
                kafka.resume()
            assert said(program, "go on") == "again", "it has ended"


@contextmanager
def running(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def said(program: "subprocess.Popen[str]", line: str = "") -> str:
    """Return the program's next line, after one of ours; empty when it has ended."""
    assert program.stdin is not None
    assert program.stdout is not None
    if line:
        program.stdin.write(f"{line}\n")
        program.stdin.flush()
    return program.stdout.readline().strip()
