"""Many connections to a program at once, each of which does the same and then nothing."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

Address = tuple[str, int]

DEADLINE_S = 120
MIB = 1024 * 1024


def address_of(url: str) -> Address:
    """Return host and port of a URL without a path."""
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def connected(address: Address, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections, and send `first` on each; at the end all are closed."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            one = socket.create_connection(address, timeout=DEADLINE_S)
            sockets.append(stack.enter_context(one))
            one.sendall(first)
        yield sockets


def head(request: str, token: str = "", **headers: str | int) -> bytes:
    """Return the head of a request, such as `GET /queues`."""
    lines = [f"{request} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


def answered(one: socket.socket) -> bytes:
    """Return the status line that has come, and leave it there; nothing while the request waits."""
    one.settimeout(0.01)
    try:
        return one.recv(12, socket.MSG_PEEK)
    except (TimeoutError, ConnectionResetError):
        return b""


def statuses(sockets: Sequence[socket.socket]) -> list[int]:
    """Return the statuses of all that have been answered."""
    return [int(line[9:]) for one in sockets if (line := answered(one))]
