"""Pools for what is tested, and connections that the harness keeps from one look to the next.

A new one costs 7 ms of CPU.
"""

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import Connection

from packhorse.db.pool import Lender, SharedPool
from packhorse.runtime.lifecycle import STOP_TIMEOUT_S

_MOST_DATABASES = 4
_idle: dict[str, list[Connection]] = {}
_lock = threading.Lock()


@contextmanager
def pooled(url: str, application: str, most: int = 4) -> Iterator[Lender]:
    """Lend connections as a program does: from a share of its pool, which is closed at the end."""
    pool = SharedPool(url, application)
    try:
        yield pool.share(most)
    finally:
        pool.stop(STOP_TIMEOUT_S)


@contextmanager
def borrowed(url: str) -> Iterator[Connection]:
    """Lend a connection for a transaction, committed at the end and kept for the next borrower.

    It is closed when the block raises. What is set for a whole session must not be set on it.
    """
    connection = _one_that_lives(url) or psycopg.connect(url)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.close()
        raise
    _keep(url, connection)


def close_kept(database: str | None = None) -> None:
    """Close what is kept: before a database is copied or dropped, and all of it at the end."""
    with _lock:
        urls = [url for url in _idle if database in (None, urlsplit(url).path.removeprefix("/"))]
        closing = [one for url in urls for one in _idle.pop(url)]
    for connection in closing:
        connection.close()


def _one_that_lives(url: str) -> Connection | None:
    """Return one that was kept; its server may have ended it meanwhile."""
    while True:
        with _lock:
            kept = _idle.get(url)
            connection = kept.pop() if kept else None
        if connection is None:
            return None
        try:
            connection.execute("SELECT")
            connection.rollback()
        except psycopg.Error:
            connection.close()
        else:
            return connection


def _keep(url: str, connection: Connection) -> None:
    """Keep it; of many databases those that were used last have one."""
    with _lock:
        _idle[url] = [*_idle.pop(url, []), connection]
        oldest = next(iter(_idle)) if len(_idle) > _MOST_DATABASES else None
        closing = _idle.pop(oldest) if oldest else []
    for one in closing:
        one.close()


atexit.register(close_kept)
