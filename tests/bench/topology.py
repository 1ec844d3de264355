"""What a cluster of many instances costs its database, and how soon all know of a change.

    python -m tests.bench.topology [INSTANCES] [SECONDS]

Runs the lease store's members, ten in each process, on one Postgres. Prints one JSON line a
measurement: the processor time of all processes of Postgres as a share of one core, and seconds
from a change until every instance has seen it settled.
"""

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from packhorse.topology.lease.member import INTERVAL_S, LEASE_S, LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import Observation, StoreUnavailable
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.bench.reporting import emit
from tests.harness.footprint import server_s
from tests.harness.postgres import Databases, running_postgres

_TOGETHER = 10
PROPERTIES = {
    "packhorse.role": "subscriber",
    "packhorse.endpoint": "http://subscriber-of-some-length.example.org:8080",
    "packhorse.version": "0.1.0",
    "packhorse.duties": "recorder",
}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with running_postgres() as server:
        url = Databases(server).new()
        with running(url, count) as groups:
            measure(server, groups, count, seconds)


def measure(server: EmbeddedPostgres, groups: Sequence["Group"], count: int, seconds: int) -> None:
    emit(f"start_{count}", until_all(groups, "has", count), "s until all have seen all")
    share = share_of(server, seconds)
    emit(f"load_{count}", share * 100, "% of a core", interval_s=INTERVAL_S)
    groups[0].ask("announce")
    took = until_all(groups, "knows", "news")
    emit(f"property_{count}", took, "s until all have seen it")
    groups[0].ask("end", True)
    took = until_all(groups, "has", count - 1)
    emit(f"leave_{count}", took, "s until all have seen it settled")
    groups[0].ask("end", False)
    took = until_all(groups, "has", count - 2)
    emit(f"death_{count}", took, "s until all have seen it settled", lease_s=LEASE_S)


def until_all(groups: Sequence["Group"], condition: str, argument: object) -> float:
    """Return the seconds until all instances have settled on a view that is wanted."""
    began = time.perf_counter()
    for group in groups:
        group.send(condition, argument)
    for group in groups:
        group.answer()
    return time.perf_counter() - began


class Instance:
    """A thread that beats, acknowledges and waits, as a process with no slow listener does."""

    def __init__(self, url: str, name: str) -> None:
        self.member = LeaseMember(SqlLeaseStore(url), name)
        self.properties = PROPERTIES
        self.seen: Observation | None = None
        self._ending = threading.Event()
        self._leaves = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self, *, leaves: bool) -> None:
        """End it, with or without a word."""
        self._leaves = leaves
        self._ending.set()
        self.member.wake()
        self._thread.join()

    def announce(self) -> None:
        """Change a property."""
        self.properties = PROPERTIES | {"news": "1"}
        self.member.wake()

    def agrees(self, condition: str, wanted: object) -> bool:
        """Return whether its view is settled, with so many instances, or with such a property."""
        seen = self.seen
        if seen is None or seen.view is None or not seen.settled:
            return False
        if condition == "has":
            return len(seen.view.instances) == wanted
        return any(wanted in instance.properties for instance in seen.view.instances)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.seen = self.member.beat(self.properties)
                self.member.acknowledge(self.seen.revision)
            except StoreUnavailable as error:
                print(error, file=sys.stderr)
            self.member.wait(INTERVAL_S)
        if self._leaves:
            self.member.leave()


class Group:
    """A process with some of the instances; more in one would wait for each other's interpreter."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        here, there = multiprocessing.Pipe()
        self._pipe = here
        self._process = multiprocessing.Process(target=serve, args=(url, names, there))
        self._process.start()

    def ask(self, *command: object) -> None:
        self.send(*command)
        self.answer()

    def send(self, *command: object) -> None:
        self._pipe.send(command)

    def answer(self) -> None:
        self._pipe.recv()

    def close(self) -> None:
        self.ask("close")
        self._process.join()


def serve(url: str, names: Sequence[str], pipe: Connection) -> None:
    """Be a group: do what is asked for, and answer when it is done."""
    instances = [Instance(url, name) for name in names]
    while instances:
        command, *arguments = pipe.recv()
        if command == "announce":
            instances[-1].announce()
        elif command == "end":
            instances.pop(0).end(leaves=arguments[0])
        elif command == "close":
            while instances:
                instances.pop().end(leaves=False)
        else:
            wait_for(instances, command, arguments[0])
        pipe.send(None)


def wait_for(instances: Sequence[Instance], condition: str, wanted: object) -> None:
    for instance in instances:
        while not instance.agrees(condition, wanted):
            time.sleep(0.01)


@contextmanager
def running(url: str, count: int) -> Iterator[list[Group]]:
    names = [f"instance-{number}" for number in range(count)]
    groups = [Group(url, names[first : first + _TOGETHER]) for first in range(0, count, _TOGETHER)]
    yield groups
    for group in groups:
        group.close()


def share_of(server: EmbeddedPostgres, seconds: int) -> float:
    """Return how much of a core all processes of the server take."""
    before, began = server_s(server.pid()), time.perf_counter()
    time.sleep(seconds)
    return (server_s(server.pid()) - before) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
