"""Instances of one cluster as real processes, and what must hold of all that they have reported."""

import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.lease.store import InstanceState
from packhorse.topology.membership import StoreUnavailable
from tests.harness.processes import Process
from tests.harness.topology.lease_rows import age, states
from tests.harness.waiting import eventually

INTERVAL_S, LEASE_S = 0.4, 600.0
"""A lease outlasts a test: one that is lost changes the order. `Cluster.retire` ends it."""

WAIT_S = 180.0
"""Generous: a machine with more processes than cores takes its time."""

VIEWS = ("INIT", "CHANGED", "PROPERTIES_CHANGED")

Line = dict[str, Any]


class Instance(Process):
    """One of them. Each run has an output of its own; `reported` has the lines of all runs."""

    def __init__(
        self, name: str, url: str, folder: Path, *, lease_s: float = LEASE_S, unfenced: bool = False
    ) -> None:
        flags = ("--unfenced",) if unfenced else ()
        command = (
            *(sys.executable, "-m", "tests.e2e.topology_instance", url, name),
            *("--interval", str(INTERVAL_S), "--timeout", str(lease_s), *flags),
        )
        super().__init__(name, command, {}, folder)
        self._runs = 0

    def start(self, *, stopped: bool = False) -> None:
        self._runs += 1
        self.output = self.output.with_name(f"{self.name}.{self._runs}.out")
        super().start(stopped=stopped)

    def run(self) -> list[Line]:
        """Return what this run has reported."""
        return [json.loads(line) for line in self.lines()]

    def runs(self) -> list[list[Line]]:
        """Return what each run has reported."""
        here, runs = self.output, []
        for number in range(1, self._runs + 1):
            self.output = here.with_name(f"{self.name}.{number}.out")
            runs.append(self.run())
        self.output = here
        return runs

    def view(self) -> Line | None:
        """Return its view if that holds now."""
        events = [line for line in self.run() if "event" in line]
        return events[-1] if events and events[-1]["event"] in VIEWS else None

    def order(self) -> list[str]:
        view = self.view()
        return [] if view is None else view["order"]


class Cluster:
    """Processes on one database, with a table for their work."""

    def __init__(self, url: str, folder: Path, lease_s: float) -> None:
        self.url, self._folder, self._lease_s = url, folder, lease_s
        self.instances: dict[str, Instance] = {}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE work (id bigserial, instance text, epoch bigint,"
                " at timestamptz DEFAULT clock_timestamp())"
            )
            connection.execute("CREATE TABLE taken (epoch bigint, at timestamptz)")
            connection.execute(
                "CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
                " $$ BEGIN INSERT INTO taken VALUES (new.epoch, clock_timestamp());"
                " RETURN new; END $$"
            )
            connection.execute(
                "CREATE TRIGGER note_taken AFTER INSERT OR UPDATE ON topology.duty"
                " FOR EACH ROW EXECUTE FUNCTION note_taken()"
            )

    def add(self, name: str, *, url: str = "", unfenced: bool = False) -> Instance:
        """Start one more."""
        made = Instance(
            name, url or self.url, self._folder, lease_s=self._lease_s, unfenced=unfenced
        )
        self.instances[name] = made
        made.start()
        return made

    def retire(self, name: str) -> None:
        """Let the lease of one that does nothing any more run out, and find that as another one."""
        with closing(SqlLeaseStore(self.url, patience_s=20.0)) as store:

            def retired() -> bool:  # its last renewal may arrive late, and hold its row
                age(self.url, 2 * self._lease_s, name)
                try:
                    state = store.look()
                    assert state is not None
                    judge = next(one.who for one in state.entries if one.who.instance_id != name)
                    store.retire(judge)
                except StoreUnavailable:
                    return False
                return states(self.url)[name] is InstanceState.INACTIVE

            eventually(retired, timeout=WAIT_S, what=f"the lease of {name} has run out")

    def await_order(self, *names: str) -> None:
        """Wait until exactly these agree on this order, whoever else still runs."""
        wanted = list(names)

        def agreed() -> bool:
            seen = {name: self.instances[name].order() for name in names}
            assert all(order == wanted for order in seen.values()), seen
            revisions = {(self.instances[name].view() or {}).get("revision") for name in names}
            return len(revisions) == 1

        eventually(agreed, timeout=WAIT_S, what=f"the order {names}")

    def agreed_order(self) -> list[str]:
        """Wait until all agree on an order with all of them, and return it."""
        names = sorted(self.instances)

        def complete() -> list[str]:
            order = self.instances[names[0]].order()
            return order if sorted(order) == names else []

        order = eventually(complete, timeout=WAIT_S, what="all have joined")
        self.await_order(*order)
        return order

    def holder(self) -> str:
        """Return the instance that has the leader task, by the database."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT holder FROM topology.duty").fetchone()
        return row[0] if row else ""

    def pieces(self) -> int:
        with psycopg.connect(self.url) as connection:
            [(count,)] = connection.execute("SELECT count(*) FROM work").fetchall()
        return int(count)

    def end(self) -> None:
        for one in self.instances.values():
            if one.running:
                os.killpg(one.pid, signal.SIGCONT)
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


@contextmanager
def cluster(url: str, lease_s: float = LEASE_S) -> Iterator[Cluster]:
    """Give an empty cluster; its processes end with the block."""
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-cluster-"))
    made = Cluster(url, folder, lease_s)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def check_events(instances: Sequence[Instance]) -> None:
    """Hold what every listener is promised, for all runs of all instances together."""
    orders: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    for one in instances:
        for run in one.runs():
            _check_run([line for line in run if "event" in line])
            for line in run:
                if line.get("event") in VIEWS:
                    assert line["leaders"] == [line["order"][0]], "one leader, the first"
                    assert line["local"] == one.name
                    orders[line["revision"]].add(tuple(line["order"]))
    assert all(len(found) == 1 for found in orders.values()), f"views differ: {orders}"
    reported = [next(iter(orders[revision])) for revision in sorted(orders)]
    for before, after in itertools.pairwise(reported):
        _check_stable(before, after)


def _check_run(events: Sequence[Line]) -> None:
    kinds = [line["event"] for line in events if line["event"] not in ("STARTED", "ENDED")]
    assert kinds[:1] in ([], ["INIT"]), kinds
    assert kinds.count("INIT") <= 1
    for before, after in itertools.pairwise(kinds):
        if before == "CHANGING":
            assert after == "CHANGED", kinds
        else:
            assert after in ("CHANGING", "PROPERTIES_CHANGED"), kinds
    revisions = [line["revision"] for line in events if line["event"] in VIEWS]
    assert revisions == sorted(revisions), "an older view came back"


def _check_stable(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """Who stays keeps its place or moves up, and who comes is last (the tests wait for each)."""
    stayed = tuple(name for name in before if name in after)
    assert after[: len(stayed)] == stayed, (before, after)


def check_work(url: str) -> None:
    """Hold that nothing was done under a token once another one had been given out."""
    with psycopg.connect(url) as connection:
        late = connection.execute(
            "SELECT w.instance, w.epoch, w.at, t.at FROM work w JOIN taken t ON t.epoch > w.epoch"
            " WHERE w.at > t.at"
        ).fetchall()
        shared = connection.execute(
            "SELECT epoch FROM work GROUP BY epoch HAVING count(DISTINCT instance) > 1"
        ).fetchall()
    assert not late, f"work was done by who had lost the leader task: {late}"
    assert not shared, f"one epoch, two instances: {shared}"
