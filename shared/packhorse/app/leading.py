"""Work of an app that one instance may do at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import Connection

from packhorse.db.transactions import Connect, within
from packhorse.topology.leader import LeaderOnly, NotLeader


class Leadership:
    """The right to do one thing, of the first instance in the order that wants it."""

    def __init__(self, name: str, leader_task: Callable[[], tuple[LeaderOnly, Connect]]) -> None:
        self.name, self._leader_task = name, leader_task

    def is_mine(self) -> bool:
        """Return whether it is this instance's now; it may be another's right afterwards.

        Raises `StoreUnavailable`.
        """
        leader_task, _ = self._leader_task()
        return leader_task.take() is not None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that commits only while the right is this instance's.

        It has the rights of the database's login. Raises `NotLeader`, also at its beginning.
        """
        leader_task, connect = self._leader_task()
        token = leader_task.take()
        if token is None:
            raise NotLeader(f"the leader task {self.name} is another instance's, or nobody's now")
        with connect() as connection, connection.transaction():
            with within(connection) as bookkeeping:
                token.check(bookkeeping)
            yield connection
