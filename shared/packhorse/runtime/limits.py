"""What one service takes on at a time, in all and of one caller."""

from dataclasses import dataclass

from packhorse.runtime.configuration import ProcessConfiguration

GRACE_S = 20.0
"""How long the server waits for a body, whatever its rate."""

MIN_BYTES_PER_S = 64 * 1024
"""The rate that a body must keep up after that."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What one service takes on."""

    body_bytes: int = 1024 * 1024
    """Of a body that is held in memory; routes that stream take more."""
    body_grace_s: float = GRACE_S
    body_rate: int = MIN_BYTES_PER_S
    held_bytes: int = 32 * 1024 * 1024
    """Of all bodies that are held in memory."""
    in_flight: int = 500
    """Requests at a time."""
    waits: int = 200
    """Requests that wait for something to happen."""
    connections: int = 900
    allowed_hosts: tuple[str, ...] = ()


DEFAULT_LIMITS = ServiceLimits()


def limits_of(settings: ProcessConfiguration) -> ServiceLimits:
    """Return the limits that an operator has set."""
    return ServiceLimits(
        body_rate=settings.min_body_rate,
        in_flight=settings.max_requests,
        waits=settings.max_waits,
        connections=settings.max_connections,
        allowed_hosts=tuple(
            filter(None, map(str.strip, settings.allowed_hosts.lower().split(",")))
        ),
    )
