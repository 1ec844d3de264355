"""Free ports of loopback for programs that are started a moment later."""

import random
import socket

# Below the range that systems hand out to outgoing connections: such a port stays free while
# the program that was given it is down for a restart.
_CANDIDATES = range(10_000, 30_000)


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of loopback that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Tell whether a program could listen on `port` of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
