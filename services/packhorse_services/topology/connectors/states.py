"""What an operator sees of the connectors, in both directions."""

import enum
from dataclasses import dataclass
from typing import Literal


class ConnectorPhase(enum.StrEnum):
    """How a connector is."""

    WAITING = "WAITING"
    """Nothing has been exchanged yet, or there is no own view to announce."""
    CONNECTED = "CONNECTED"
    STANDBY = "STANDBY"
    """It works, but a URL before it leads to the same cluster; it is tried rarely."""
    LOOP = "LOOP"
    """It leads back into the own cluster; it is tried rarely."""
    FAILED = "FAILED"
    """The last exchange failed; `reason` says why."""


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """One connector. `direction` "out" is one of ours, "in" one that a peer has opened."""

    direction: Literal["in", "out"]
    state: ConnectorPhase
    url: str
    """Without user and password; "" for incoming ones."""
    holder: str
    """The instance of the own cluster that runs an outgoing one; "" for incoming ones."""
    instance_id: str
    """The peer's; "" while it is not known."""
    cluster_id: str
    address: str
    """Where an incoming one comes from."""
    last_exchange_ms: int | None
    """When the last exchange succeeded, in milliseconds since 1970."""
    next_exchange_in_s: float | None
    """In how many seconds the next one is due; below 0 when it is late."""
    interval_s: float
    """From one exchange to the next, with the present back-off."""
    reason: str
    """Why it is not CONNECTED."""
