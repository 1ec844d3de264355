"""A program that asks Kafka what services ask, reads and publishes, until its stdin is closed.

It prints `ready` once everything worked, and `again` for every line that it is sent, once that has
worked once more since. Whatever Kafka's client raises meanwhile is passed over.
"""

import sys
import threading

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal, LogEnd, Outgoing
from packhorse.messaging.open import open_journal

_ASKING = 4


class Asking:
    """Questions in several threads; each counts what worked."""

    def __init__(self, journal: Journal, topic: str) -> None:
        self._journal, self._topic = journal, topic
        self._worked = threading.Condition()
        self._counts = dict.fromkeys(("ask", "publish", "read"), 0)
        for _ in range(_ASKING):
            threading.Thread(target=self._repeat, args=("ask", self._ask), daemon=True).start()
        threading.Thread(target=self._repeat, args=("publish", self._publish), daemon=True).start()
        threading.Thread(target=self._repeat, args=("read", self._read), daemon=True).start()

    def wait(self) -> None:
        """Return once everything has worked since the call."""
        with self._worked:
            before = dict(self._counts)
            self._worked.wait_for(lambda: all(self._counts[one] > before[one] for one in before))

    def _repeat(self, name: str, act: object) -> None:
        while True:
            try:
                act()  # type: ignore[operator]
            except PackhorseError:
                continue
            with self._worked:
                self._counts[name] += 1
                self._worked.notify_all()

    def _ask(self) -> None:
        self._journal.identity(self._topic)
        self._journal.bounds(self._topic)
        self._journal.offset_at(self._topic, 0)

    def _publish(self) -> None:
        self._journal.append(self._topic, Outgoing(b"value")).result(120)

    def _read(self) -> None:
        with self._journal.reader(self._topic, LogEnd.NEXT) as reader:
            for _ in range(20):
                if reader.poll(0.5):
                    return
        raise PackhorseError("nothing came")


def main(url: str, topic: str) -> None:
    """Ask until stdin ends."""
    asking = Asking(open_journal(url, client_name="asking"), topic)
    asking.wait()
    print("ready", flush=True)
    for _ in sys.stdin:
        asking.wait()
        print("again", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
