"""What goes wrong at a subscriber, and whose fault it is: the package's or the surroundings'."""

import sys

import psycopg

from packhorse.blobs.api import BlobMissing
from packhorse.errors import PackhorseError, Permanent, Transient

_LATE_BLOB_TRIES = 3
"""A store may show a new blob late; one that stays away is the package's fault."""

_OUTAGE_TRIES = 10
"""A database that ends sessions is at fault, unless it is always this package that ends them."""

_OUTAGE_CLASSES = frozenset({"08", "25", "53", "57", "58"})
_QUERY_CANCELED = "57014"
_LOCK_NOT_AVAILABLE = "55P03"
_ROLLBACK_CLASS = "40"
"""Deadlocks and the like: somebody else was in the way."""

_REASON_CHARACTERS = 1_000


class Fenced(Transient):
    """Another worker has taken over, or the position has moved: read it before anything else."""


class SessionLost(Transient):
    """The subscription's connection is gone; what its last transaction did is unknown (R26)."""


class Gap(Permanent):
    """The log has forgotten packages that this subscription has still to import (R13)."""


class JournalMismatch(Permanent):
    """The journal is not the one that the stored offset speaks of (R24)."""


def excused_tries(error: BaseException) -> int:
    """Return how many tries in a row such a failure costs a package nothing; 0: each counts."""
    if isinstance(error, BlobMissing):
        return _LATE_BLOB_TRIES
    if isinstance(error, psycopg.Error):
        return _database_tries(error)
    return sys.maxsize if isinstance(error, Transient) else 0


def _database_tries(error: psycopg.Error) -> int:
    state = error.sqlstate
    if state is None:  # the client's own: a lost connection, or a value it can't send
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return _OUTAGE_TRIES if lost else 0
    if state == _LOCK_NOT_AVAILABLE or state.startswith(_ROLLBACK_CLASS):
        return sys.maxsize
    outage = state[:2] in _OUTAGE_CLASSES and state != _QUERY_CANCELED
    return _OUTAGE_TRIES if outage else 0


def reason(error: BaseException) -> str:
    """Return one line that a queue can show and a database can store.

    Of a constraint that is violated without details: they quote the row, which is content.
    """
    primary = error.diag.message_primary if isinstance(error, psycopg.IntegrityError) else None
    text = " ".join((primary or str(error)).replace("\0", "").split()) or "no further reason"
    kind = "" if isinstance(error, PackhorseError) else f"{type(error).__name__}: "
    return printable(f"{kind}{text}", _REASON_CHARACTERS)


def printable(text: str, characters: int) -> str:
    """Return `text` cut and without what Postgres or UTF-8 can't hold (R30)."""
    cut = text[:characters].replace("\0", "")
    return cut.encode("utf-8", "replace").decode()
