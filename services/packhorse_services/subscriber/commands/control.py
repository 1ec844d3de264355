"""What operators want of the subscriptions: run, pause or stop, and since which command."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from psycopg import Connection

from packhorse.wire.messages import DesiredState


@dataclass(frozen=True, slots=True)
class DesiredControl:
    """What is wanted of a subscription, and which command said so last."""

    desired: DesiredState = DesiredState.RUN
    command_id: str = ""


_NOTHING = DesiredControl()


class SubscriptionControl:
    """What is wanted of each subscription of this database.

    A subscription that nobody spoke of runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: Mapping[str, DesiredControl] = {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a subscription may have to do something else."""
        self._listeners.append(listener)

    def desired(self, agent: str) -> DesiredState:
        """Return what is wanted of the subscription of `agent`."""
        with self._lock:
            return self._wanted.get(agent, _NOTHING).desired

    def command_id(self, agent: str) -> str:
        """Return which command was the last that said so, or said to try again."""
        with self._lock:
            return self._wanted.get(agent, _NOTHING).command_id

    def take(self, wanted: Mapping[str, DesiredControl]) -> None:
        """Put in force what the database says of all subscriptions, and notify the listeners."""
        with self._lock:
            self._wanted = dict(wanted)
        for listener in self._listeners:
            listener()


def load(connection: Connection) -> dict[str, DesiredControl]:
    """Return what the database says; it goes with a copy, which stands still too (ADR 0015)."""
    rows = connection.execute(
        "SELECT publisher_agent, desired, command_id FROM bookkeeping.subscription_control"
    )
    return {
        agent: DesiredControl(DesiredState(desired), by) for agent, desired, by in rows.fetchall()
    }


def lock(connection: Connection, agent: str) -> DesiredState:
    """Return the desired state of a subscription, and lock it until the commit."""
    row = connection.execute(
        "SELECT desired FROM bookkeeping.subscription_control "
        "WHERE publisher_agent = %s FOR UPDATE",
        (agent,),
    ).fetchone()
    return DesiredState.RUN if row is None else DesiredState(row[0])


def introduce(connection: Connection, agent: str) -> None:
    """Give a subscription that nobody spoke of a row, for `lock` to hold."""
    connection.execute(
        """
        INSERT INTO bookkeeping.subscription_control (publisher_agent, desired, command_id)
        VALUES (%s, %s, '') ON CONFLICT DO NOTHING
        """,
        (agent, DesiredState.RUN.value),
    )


def store(connection: Connection, agent: str, desired: DesiredState, command_id: str) -> None:
    """Write what is wanted of a subscription, in the caller's transaction."""
    connection.execute(
        """
        INSERT INTO bookkeeping.subscription_control (publisher_agent, desired, command_id)
        VALUES (%s, %s, %s) ON CONFLICT (publisher_agent) DO UPDATE
        SET desired = excluded.desired, command_id = excluded.command_id,
            changed_at = clock_timestamp()
        """,
        (agent, desired.value, command_id),
    )
