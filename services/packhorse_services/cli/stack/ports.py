"""Free ports of loopback for programs that are started a moment later."""

import random
import socket
from collections import deque

from packhorse_services.cli.client.failures import CommandFailed
from packhorse_services.cli.client.settings import port_range

_given: deque[int] = deque(maxlen=1_000)
"""Those of late: the programs that they are for may not listen yet."""


def free_port(last: int = 0) -> int:
    """Return a port of loopback that nobody listens on now: `last`, where it is still one."""
    if last in port_range() and last not in _given and is_free(last):
        _given.append(last)
        return last
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of loopback that nobody listens on now.

    None was returned a moment before in this process. Raises `CommandFailed` when there are not so
    many, or `PACKHORSE_PORTS` is no range.
    """
    found: list[int] = []
    ports = port_range()
    for port in random.sample(ports, len(ports)):
        if len(found) == count:
            break
        if port not in _given and is_free(port):
            found.append(port)
    if len(found) < count:
        raise CommandFailed(f"PACKHORSE_PORTS: only {len(found)} of {count} ports are free")
    _given.extend(found)
    return found


def is_free(port: int) -> bool:
    """Return whether a program could listen on `port` of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
