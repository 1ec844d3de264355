"""The thread of one connector, without a network."""

import threading
from typing import Any

from packhorse_services.topology.connectors.connector import Connector
from packhorse_services.topology.connectors.options import ConnectorSettings
from packhorse_services.topology.connectors.states import State


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
        self.settings, self.clock, self.topology = ConnectorSettings(), Leaping(), self
        self.instance_id = "one"
        self.looks: list[float] = []
        self.stopping = threading.Event()
        self._kicks = kicks
        subject: Any = self
        self.connector = Connector("http://peer.example", subject, subject)

    def look(self) -> None:
        self.looks.append(self.clock.now)
        if self._kicks:
            self.connector.kick()
        if len(self.looks) == 20:
            self.stopping.set()

    def settle(self, *_: object) -> None:
        pass

    def run(self) -> list[float]:
        self.connector._run(self.stopping)
        return [round(b - a, 3) for a, b in zip(self.looks, self.looks[1:], strict=False)]


def test_news_without_an_end_do_not_let_it_run_without_a_pause() -> None:
    assert min(Restless(kicks=True).run()) >= 0.1


def test_without_a_view_it_looks_again_soon() -> None:
    subject = Restless(kicks=False)
    assert set(subject.run()) == {1.0}
    assert subject.connector.outcome().state is State.WAITING
