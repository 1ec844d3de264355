"""Stores an event of the bus for the other instances, while its sender waits."""

import time

import psycopg
from psycopg_pool import PoolClosed

from packhorse.db.connect import AWAY, PATIENCE_S, retry_pause_s
from packhorse.db.pool import Lender
from packhorse.db.transactions import bookkeeping
from packhorse.jobs.event import Event
from packhorse.jobs.event_store import as_json, notify
from packhorse.jobs.events.bus import EventNotStored
from packhorse.runtime.metrics import EVENTS_STORED


def store_event(
    pool: Lender, application: str, event: Event, *, patience_s: float = PATIENCE_S
) -> None:
    """Return once the event is stored; a database that is away is waited for.

    Its number is drawn before, in a transaction that is over: a server that crashes then gives it
    to nobody else. So when nobody knows whether the commit happened, the event is written again,
    and what is there already stays as it is (R26). Raises `EventNotStored`.
    """
    properties = as_json(event.properties).decode()
    number, failures, until = 0, 0, time.monotonic() + patience_s
    while True:
        try:
            with pool.connection(max(0.0, until - time.monotonic())) as connection:
                if not number:
                    number = _next_number(connection)
                with bookkeeping(connection):
                    _write(connection, (number, event.topic, application, properties))
        except AWAY as error:
            left = until - time.monotonic()
            if left <= 0 or isinstance(error, PoolClosed):
                raise EventNotStored(f"the event is not known to be stored: {error}") from error
            failures += 1
            time.sleep(min(retry_pause_s(failures), left))
        except psycopg.Error as error:
            raise EventNotStored(f"the database refused the event: {error}") from error
        else:
            EVENTS_STORED.inc()
            return


def _next_number(connection: psycopg.Connection) -> int:
    with bookkeeping(connection):
        [(number,)] = connection.execute("SELECT nextval('jobs.event_number_seq')").fetchall()
    return int(number)


def _write(connection: psycopg.Connection, values: tuple[int, str, str, str]) -> None:
    connection.execute(
        """
        INSERT INTO jobs.event (number, topic, application, properties)
        VALUES (%s, %s, %s, %s::jsonb) ON CONFLICT (number) DO NOTHING
        """,
        values,
    )
    notify(connection)
