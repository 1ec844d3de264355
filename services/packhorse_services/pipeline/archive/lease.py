"""The lease of an archive: of all runs on the same tables, one at a time.

It is a session lock in the author's database, as that of the cleanup. What was committed never
rests on it: the tables themselves refuse a run that another one has overtaken (`BatchMark`). It
tells a second run so before it has done anything.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse_services.pipeline.engine.databases import (
    AUTHOR,
    AUTHOR_SETTING,
    author_away,
    require_url,
    unusable,
)
from packhorse_services.pipeline.errors import NotYet

logger = logging.getLogger(__name__)

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('packhorse archive ' || %s, 0))"
_IDLE = "5min"
"""A holder that is paused for longer loses its session, and with it the lease."""
_KEEPALIVES = {"idle": "10", "interval": "5", "count": "3"}
"""Postgres asks the holder's machine so, and notices within 25 s that it is gone."""
_PATIENCE_S = 40.0
"""A run that has just died holds the lock until Postgres has noticed."""
_LOOK_S = 0.5
_RENEW_S = 10.0

_HOLDER = """
    SELECT format('session %%s, %%s', pid, coalesce(client_addr::text, 'here'))
    FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) + objid::bigint = hashtextextended('packhorse archive ' || %s, 0)
"""
_ANOTHER = "another run of the archive is at work on {}; wait for it, or end it first"


class ArchiveLease:
    """The lease of the tables at a place, kept by who calls `keep` every now and then."""

    def __init__(
        self, open_session: Callable[[], Connection], place: str, stop: threading.Event
    ) -> None:
        self._open, self._place, self._stop = open_session, place, stop
        self._session: Connection | None = None
        self._asked_at = 0.0

    def take(self, *, wait: bool = False) -> None:
        """Take it, and `wait` until the run that keeps it has ended, or this one is to stop.

        Raises `NotYet` when another run keeps it and this one is not to wait, and
        `psycopg.Error`.
        """
        self._session = self._open()
        try:
            self._take(self._session, wait=wait)
        except BaseException:
            self.release()  # `keep` would take a session that lives for one that has the lease
            raise
        self._asked_at = time.monotonic()

    def _take(self, session: Connection, *, wait: bool) -> None:
        chosen = {f"tcp_keepalives_{name}": value for name, value in _KEEPALIVES.items()}
        for setting in {"idle_session_timeout": _IDLE, **chosen}.items():
            session.execute("SELECT set_config(%s, %s, false)", setting)
        until = time.monotonic() + _PATIENCE_S
        while session.execute(_LOCK, (self._place,)).fetchone() != (True,):
            if time.monotonic() > until:
                if not wait:
                    raise NotYet(_ANOTHER.format(self._place))
                self._report_holder(session)
                until += _PATIENCE_S
            if self._stop.wait(_LOOK_S):
                return

    def _report_holder(self, session: Connection) -> None:
        by = session.execute(_HOLDER, (self._place,)).fetchone()
        told = {"holder": by[0] if by else "nobody"}
        logger.warning("waiting for another run of the archive", extra=told)

    def keep(self) -> None:
        """Tell Postgres that its holder lives; take it anew where the session has ended.

        Raises `NotYet` when another run has it by now. While the database is away it stays as
        it is: nobody else can take it either.
        """
        if time.monotonic() - self._asked_at < _RENEW_S or self._session is None:
            return
        self._asked_at = time.monotonic()
        try:
            self._session.execute("SELECT")
        except psycopg.Error:
            self.release()
            try:
                self.take()
            except psycopg.Error:
                return

    def release(self) -> None:
        """Let another run have it."""
        if self._session is not None:
            self._session.close()


@contextmanager
def only_run(
    database_url: str, place: str, stop: threading.Event | None = None, *, wait: bool = False
) -> Iterator[Callable[[], None]]:
    """Be the only run on the tables at `place`, and give what keeps it so; "" asks nobody.

    When `stop` is set meanwhile, it may not be the only one, and is to do nothing. Raises
    `NotYet` unless it is to `wait` for the end of another run, and `TaskRefused` or `TaskFailed`
    when the database can't be used.
    """
    if not database_url:
        yield lambda: None
        return
    require_url(database_url, AUTHOR_SETTING, AUTHOR)
    stop = stop or threading.Event()
    lease = ArchiveLease(
        lambda: connect(database_url, "packhorse-archive", autocommit=True), place, stop
    )
    try:
        try:
            lease.take(wait=wait)
        except psycopg.Error as error:
            raise unusable(author_away(error), error) from error
        yield lease.keep
    finally:
        lease.release()
