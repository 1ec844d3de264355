"""A program that appends numbered records until it is killed, and prints those acknowledged.

`python -m tests.integration.append_forever URL TOPIC NAME` prints `OFFSET VALUE` a line.
"""

import sys
from collections import deque
from concurrent.futures import Future
from itertools import count

from packhorse.messaging.api import Appended, Outgoing
from packhorse.messaging.open import open_journal

WINDOW = 20


def main(url: str, topic: str, name: str) -> None:
    journal = open_journal(url, client_name=name)
    waiting: deque[tuple[str, Future[Appended]]] = deque()
    for number in count():
        value = f"{name}-{number}"
        waiting.append((value, journal.append(topic, Outgoing(value.encode()))))
        if len(waiting) == WINDOW:
            value, future = waiting.popleft()
            print(future.result().offset, value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
