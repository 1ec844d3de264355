"""What operators want of the lanes: run, pause or stop, as the database has it."""

import threading
from collections.abc import Callable, Mapping

from psycopg import Connection

from packhorse.wire.messages import DesiredState


class LaneControl:
    """The desired state of each lane of this database; a lane that nobody spoke of runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._desired: Mapping[str, DesiredState] = {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a lane may have to do something else."""
        self._listeners.append(listener)

    def desired(self, agent: str) -> DesiredState:
        """Return what is wanted of the lane of `agent`."""
        with self._lock:
            return self._desired.get(agent, DesiredState.RUN)

    def take(self, desired: Mapping[str, DesiredState]) -> None:
        """Put in force what the database says of all lanes, and tell the listeners."""
        with self._lock:
            self._desired = dict(desired)
        for listener in self._listeners:
            listener()


def load(connection: Connection) -> dict[str, DesiredState]:
    """Return what the database says; it goes with a copy, which stands still too (ADR 0015)."""
    rows = connection.execute("SELECT publisher_agent, desired FROM bookkeeping.lane_control")
    return {agent: DesiredState(desired) for agent, desired in rows.fetchall()}


def lock(connection: Connection, agent: str) -> DesiredState:
    """Return what is wanted of a lane, and keep others from changing it until the commit."""
    row = connection.execute(
        "SELECT desired FROM bookkeeping.lane_control WHERE publisher_agent = %s FOR UPDATE",
        (agent,),
    ).fetchone()
    return DesiredState.RUN if row is None else DesiredState(row[0])


def introduce(connection: Connection, agent: str) -> None:
    """Give a lane that nobody spoke of a row, for `lock` to hold."""
    connection.execute(
        """
        INSERT INTO bookkeeping.lane_control (publisher_agent, desired, command_id)
        VALUES (%s, %s, '') ON CONFLICT DO NOTHING
        """,
        (agent, DesiredState.RUN.value),
    )


def store(connection: Connection, agent: str, desired: DesiredState, command_id: str) -> None:
    """Write what is wanted of a lane, in the caller's transaction."""
    connection.execute(
        """
        INSERT INTO bookkeeping.lane_control (publisher_agent, desired, command_id)
        VALUES (%s, %s, %s) ON CONFLICT (publisher_agent) DO UPDATE
        SET desired = excluded.desired, command_id = excluded.command_id,
            changed_at = clock_timestamp()
        """,
        (agent, desired.value, command_id),
    )
