"""What 1,000 subscribers that announce themselves every 10 s cost a publisher.

    python -m tests.bench.announcements [SECONDS]

Runs the publisher as a program on the SQL journal. Prints one JSON line: its share of one core,
and what it takes when nobody announces anything.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from tests.bench.queues import AGENT
from tests.bench.reporting import emit
from tests.harness.footprint import processor_s
from tests.harness.postgres import Databases, running_postgres
from tests.harness.publisher_program import program
from tests.harness.publishing import TOPICS

SUBSCRIBERS, EVERY_S, BEATS_A_S = 1_000, 10, 10


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        author, url = databases.new("author"), databases.new("journal")
        with program(author, url, Path(folder)) as (_, pid):
            journal = open_journal(url, client_name="bench")
            measure(pid, Announcer(journal), seconds)
            journal.close()


def measure(pid: int, announcer: "Announcer", seconds: int) -> None:
    idle = share_of(pid, EVERY_S, lambda: None)
    share_of(pid, EVERY_S, announcer.beat)  # until all are known
    busy = share_of(pid, seconds, announcer.beat)
    emit("of_1000", busy * 100, "% of a core", idle_percent=idle * 100)


class Announcer:
    """Plays the subscribers."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._numbers = journal, itertools.cycle(range(SUBSCRIBERS))

    def beat(self) -> None:
        """Announce as many as are due in a tenth of a second."""
        for number in itertools.islice(self._numbers, SUBSCRIBERS // EVERY_S // BEATS_A_S):
            name, subscriptions = f"s{number}", (SubscriberState(AGENT, -1),)
            message = encode_discovery(DiscoveryMessage(name, subscriptions, endpoint="http://s"))
            self._journal.append(TOPICS.discovery, Outgoing(message.value, message.headers, name))


def share_of(pid: int, seconds: int, beat: Callable[[], None]) -> float:
    """Return how much of a core a process took while `beat` was called ten times a second."""
    before, began = processor_s(pid), time.perf_counter()
    for tenth in range(seconds * BEATS_A_S):
        beat()
        time.sleep(max(0.0, began + (tenth + 1) / BEATS_A_S - time.perf_counter()))
    return (processor_s(pid) - before) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
