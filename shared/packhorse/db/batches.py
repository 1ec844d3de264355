"""Removing much in batches, so that no lock is held for long."""

from collections.abc import Callable

from psycopg import Connection

from packhorse.db.pool import Lender
from packhorse.db.roles import act_as

_MOST_BATCHES = 100


def in_batches(pool: Lender, role: str, remove: Callable[[Connection], int], size: int) -> int:
    """Call `remove` until it removes less than `size` rows; return how many it has removed.

    Each time in a transaction of its own, as `role`. What is left after a hundred times waits for
    the next round.
    """
    total = 0
    for _ in range(_MOST_BATCHES):
        with pool.connection() as connection:
            act_as(connection, role)
            removed = remove(connection)
        total += removed
        if removed < size:
            break
    return total
