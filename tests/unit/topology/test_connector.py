"""The thread of one connector, without a network."""

import threading
from typing import Any

from packhorse.clock import SystemClock
from packhorse.topology.announcements import Announcement
from packhorse_services.topology.connectors.connector import Connector
from packhorse_services.topology.connectors.knowledge import ClusterKnowledge
from packhorse_services.topology.connectors.options import ConnectorConfiguration, base_url
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.topology.clusters import cluster


class Leaping:
    """A clock that leaps to the end of each wait; what is set already costs no time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.now += seconds
        return event.is_set()


class Restless:
    """Knows nothing, and has news for the connector whenever it is asked."""

    def __init__(self, kicks: bool) -> None:
        self.settings, self.clock, self.topology = ConnectorConfiguration(), Leaping(), self
        self.instance_id = "one"
        self.looks: list[float] = []
        self.stopping = threading.Event()
        self._kicks = kicks
        subject: Any = self
        self.connector = Connector(base_url("http://peer.example"), subject, subject)

    def look(self) -> None:
        self.looks.append(self.clock.now)
        if self._kicks:
            self.connector.kick()
        if len(self.looks) == 20:
            self.stopping.set()

    def reconcile(self, *_: object) -> None:
        pass

    def run(self) -> list[float]:
        self.connector._run(self.stopping)
        return [round(b - a, 3) for a, b in zip(self.looks, self.looks[1:], strict=False)]


def test_news_without_an_end_do_not_let_it_run_without_a_pause() -> None:
    assert min(Restless(kicks=True).run()) >= 0.1


def test_without_a_view_it_looks_again_soon() -> None:
    subject = Restless(kicks=False)
    assert set(subject.run()) == {1.0}
    assert subject.connector.outcome().state is ConnectorPhase.WAITING


class Overtaken:
    """An earlier URL leads to the cluster of the peer too, or doesn't."""

    def __init__(self, overtaken: bool) -> None:
        self.settings, self.clock, self.topology = ConnectorConfiguration(), SystemClock(), self
        self.instance_id, self.heard = "one-1", list[str]()
        self._overtaken = overtaken
        subject: Any = self
        self.connector = Connector(base_url("http://peer.example"), subject, subject)
        self.connector._exchange = subject

    def look(self) -> ClusterKnowledge:
        return ClusterKnowledge(0.0, self.instance_id, cluster("one"), (), 15.0, False, 0)

    def put(self, *_: object) -> Announcement:
        return Announcement("two-1", cluster("two"))

    def hear(self, announcement: Announcement, **_: object) -> None:
        self.heard.append(announcement.owner)

    def is_overtaken(self, *_: object) -> bool:
        return self._overtaken


def test_on_standby_it_keeps_nothing_of_what_it_hears() -> None:
    """Its peer may be behind the one whose word is kept, and it comes back rarely."""
    for overtaken, state, kept in (
        (True, ConnectorPhase.STANDBY, []),
        (False, ConnectorPhase.CONNECTED, ["two-1"]),
    ):
        subject = Overtaken(overtaken)
        assert subject.connector._next_outcome().state is state
        assert subject.heard == kept
