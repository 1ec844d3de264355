"""Takes the events of a process to all instances of its cluster, through the cluster's database."""

from packhorse.db.connect import connect
from packhorse.jobs.channels import EVENTS
from packhorse.jobs.events.bus import EventBus
from packhorse.jobs.events.outbox import Outbox
from packhorse.jobs.events.receiver import Receiver, ReceiverSettings
from packhorse.runtime.listen import Listener


class EventDistribution:
    """A component; start it after the bus and the hints, stop it before them.

    `instance_id` is the persistent id of the instance: nobody else uses it at the same time. A new
    one hears what is stored from its first start on, a known one what it has not heard yet:
    whoever wants that subscribes before the start.
    """

    def __init__(
        self,
        url: str,
        instance_id: str,
        bus: EventBus,
        hints: Listener,
        *,
        settings: ReceiverSettings | None = None,
    ) -> None:
        self._bus = bus
        self.outbox = Outbox(
            lambda: connect(url, "packhorse-events-out", autocommit=True), instance_id
        )
        self.receiver = Receiver(
            lambda: connect(url, "packhorse-events-in", autocommit=True),
            instance_id,
            bus,
            settings or ReceiverSettings(),
        )
        hints.on(EVENTS, lambda _: self.receiver.wake())

    def start(self) -> None:
        """Begin to take events both ways; returns at once, whether the database answers or not."""
        self.outbox.start()
        self._bus.carry_with(self.outbox)
        self._bus.once_heard(self.receiver.start)

    def stop(self, timeout: float) -> None:
        """Store what waits and hear nothing more, within about `timeout` seconds."""
        self._bus.carry_with(None)
        self.outbox.stop(timeout / 2)
        self.receiver.stop(timeout / 2)

    def failure(self) -> BaseException | None:
        """Return what ended a thread, which no database does."""
        return self.outbox.failure() or self.receiver.failure()

    def wait_until_current(self, timeout: float) -> bool:
        """Wait until all was handed out that was there when the database was reached."""
        return self.receiver.wait_until_current(timeout)
