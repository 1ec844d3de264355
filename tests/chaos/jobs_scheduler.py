"""An instance with a scheduler as a process; `--unfenced` is the broken build that always leads."""

import argparse
import threading
from typing import Any

from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.scheduling.scheduler import LEADER_TASK, Scheduler
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.signals import set_by_signals
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.leader import Token
from packhorse.topology.own_cluster import InstanceProperties, join
from tests.harness.borrowing import pooled


class _Unfenced(Token):
    def check(self, connection: Any) -> None:
        pass


class _AlwaysLeads:
    def take(self) -> Token:
        return _Unfenced(LEADER_TASK, "", "", 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--unfenced", action="store_true")
    given = parser.parse_args()
    settings = TopologyConfiguration(
        instance_id=given.name,
        topology_interval_s=0.4,
        topology_timeout_s=4.0,
        min_event_delay_s=0.2,
    )
    cluster = join(given.url, settings, InstanceProperties("tests", leader_tasks=(LEADER_TASK,)))
    stopping = threading.Event()
    with pooled(given.url, f"scheduler {given.name}", 3) as pool:
        ours = cluster.leader_task(LEADER_TASK, pool.connection)
        scheduler = Scheduler(
            pool.connection,
            given.name,
            leader=_AlwaysLeads() if given.unfenced else ours,
            members=lambda: live_handled_topics(cluster.discovery),
        )
        with set_by_signals(stopping), Lifecycle([cluster, scheduler]):
            stopping.wait()


if __name__ == "__main__":
    main()
