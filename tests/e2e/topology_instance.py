"""One instance as a process: prints the topology's events as JSON, and does its leader task.

It works as long as it can with a token once it has one, as a program that was paused would; each
piece of work is a row. `--unfenced` is the broken build: it never asks whether the token holds.
"""

import argparse
import json
import os
import sys
import threading
from typing import Any

import psycopg

from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import SharedPool
from packhorse.db.roles import act_as
from packhorse.runtime.signals import set_by_signals
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.events import TopologyEvent
from packhorse.topology.leader import NotLeader, Token
from packhorse.topology.membership import Observation, StoreUnavailable
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join

LEADER_TASK = "work"
_PIECE_S = 0.2
_writing = threading.Lock()


def report(**what: Any) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"pid": os.getpid(), **what}) + "\n")
        sys.stdout.flush()


class Revisions:
    """Remembers which revision each view is of."""

    def __init__(self, membership: Any) -> None:
        self._known: dict[int, tuple[Any, str]] = {}
        self._beat = membership.beat
        membership.beat = self._watched

    def _watched(self, properties: Any) -> Observation:
        seen: Observation = self._beat(properties)
        if seen.view is not None:
            self._known[id(seen.view)] = (seen.view, seen.revision)
        return seen

    def of(self, view: Any) -> str:
        return self._known[id(view)][1]


def hear(revisions: Revisions, event: TopologyEvent) -> None:
    if event.new is None:
        report(event=event.kind.value)
        return
    own = event.new.local_cluster
    report(
        event=event.kind.value,
        revision=int(revisions.of(own)),
        cluster=own.id,
        order=list(own.ids),
        leaders=[one.id for one in own.instances if one.is_leader],
        local=event.new.local_instance.id,
    )


class Work:
    """The leader task's work: a row in the table `work` for each piece."""

    def __init__(self, cluster: OwnCluster, url: str, name: str, *, fenced: bool) -> None:
        self._url, self._name, self._fenced = url, name, fenced
        lender = SharedPool(url, f"leader task {name}").share(1)
        self._leader_task = cluster.leader_task(LEADER_TASK, lender.connection)

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(0.05):
            try:
                token = self._leader_task.take()
            except StoreUnavailable:
                continue
            if token is not None:
                report(holds=token.epoch)
                while not stopping.is_set() and self._piece(token, stopping):
                    pass

    def _piece(self, token: Token, stopping: threading.Event) -> bool:
        try:
            with connect(self._url, f"work {self._name}") as connection, connection.transaction():
                act_as(connection, BOOKKEEPER)
                if self._fenced:
                    token.check(connection)
                connection.execute("SET LOCAL ROLE NONE")
                stopping.wait(_PIECE_S)
                connection.execute(
                    "INSERT INTO work (instance, epoch) VALUES (%s, %s)", (self._name, token.epoch)
                )
        except (NotLeader, psycopg.Error) as error:
            report(refused=token.epoch, why=type(error).__name__)
            return not self._fenced
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--interval", type=float, default=0.3)
    parser.add_argument("--timeout", type=float, default=2.0)
    parser.add_argument("--unfenced", action="store_true")
    given = parser.parse_args()
    settings = TopologyConfiguration(
        instance_id=given.name,
        topology_interval_s=given.interval,
        topology_timeout_s=given.timeout,
        min_event_delay_s=given.interval,
    )
    cluster = join(given.url, settings, InstanceProperties("tests", leader_tasks=(LEADER_TASK,)))
    revisions = Revisions(cluster.discovery.membership)
    cluster.discovery.add_listener(lambda event: hear(revisions, event))
    stopping = threading.Event()
    work = Work(cluster, given.url, given.name, fenced=not given.unfenced)
    with set_by_signals(stopping):
        cluster.start()
        report(event="STARTED")
        work.run(stopping)
        cluster.stop(120)
    report(event="ENDED")


if __name__ == "__main__":
    main()
