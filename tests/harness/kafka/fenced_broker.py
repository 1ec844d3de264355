"""A broker as clients see it while its controller has fenced it: metadata that name no broker.

That is how a broker that goes on after a stall may answer. It speaks as much of Kafka's protocol
as it takes for a client to connect and to ask for metadata.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_METADATA, _API_VERSIONS = 3, 18
_UNSUPPORTED_VERSION = 35


@dataclass
class FencedBroker:
    """Names itself in its metadata until `fence` is called."""

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
