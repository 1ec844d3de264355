"""Runs at their time, on the instance that has the duty; and runs by hand."""

import logging
from typing import Protocol

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.topology.leader import Token
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.report import Run
from packhorse_services.cleanup.schedule import Schedule
from packhorse_services.cleanup.sweep import Sweep
from packhorse_services.cleanup.turn import CleanupBusy, take_turn

logger = logging.getLogger(__name__)

Pool = ConnectionPool[Connection]

DUTY = "cleanup"


class Duty(Protocol):
    """Whose turn it is to clean up."""

    def take(self) -> Token | None:
        """Return the right to it; None while it is another's. Raises `StoreUnavailable`."""
        ...


class Runner:
    """Begins runs of one sweep; without a duty, on every instance that gets the turn."""

    def __init__(
        self,
        database_url: str,
        pool: Pool,
        sweep: Sweep,
        schedule: Schedule,
        duty: Duty | None = None,
    ) -> None:
        self._database_url, self._pool = database_url, pool
        self._sweep, self._schedule, self._duty = sweep, schedule, duty
        self._planned = False

    def run_if_due(self) -> None:
        """Do the run that waits or whose time has come, if that is for this instance to do."""
        token = None
        if self._duty is not None and (token := self._duty.take()) is None:
            return
        with self._pool.connection() as connection:
            act_as(connection, BOOKKEEPER)
            if not self._planned:
                ledger.bring_forward(connection, self._schedule)
            due = ledger.is_due(connection)
        self._planned = True
        if not due:
            return
        try:
            with take_turn(self._database_url, token) as turn:
                with turn.transaction() as connection:
                    run = ledger.begin_due(connection, turn.epoch, self._schedule)
                if run is not None:
                    self._sweep.perform(turn, run)
        except CleanupBusy:
            logger.debug("another instance is cleaning up")


def run_by_hand(database_url: str, sweep: Sweep, *, dry_run: bool) -> Run:
    """Do a run now and return it. Raises `CleanupBusy`, and what `Sweep.perform` raises."""
    with take_turn(database_url) as turn:
        with turn.transaction() as connection:
            run = ledger.begin(connection, turn.epoch, "hand", dry_run=dry_run)
        sweep.perform(turn, run)
        with turn.transaction() as connection:
            return ledger.find(connection, run.id) or run
