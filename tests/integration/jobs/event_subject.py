"""A process that is one instance: sends what stdin says, writes what it hears into a file.

    python -m tests.integration.jobs.event_subject URL INSTANCE FILE

Each line of stdin is the name of an event for all instances. The file gets `heard NAME` for those
of others, `local NAME` for its own, and `sent NAME` once one is stored.
"""

import os
import sys

from packhorse.jobs.event import Event
from packhorse.jobs.events.bus import EventNotStored
from tests.harness.jobs.events import Instance, named


def main(url: str, instance: str, path: str) -> None:
    """Run until stdin ends."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(word: str, name: str) -> None:
        os.write(file, f"{word} {name}\n".encode())

    def hear(event: Event) -> None:
        say("local" if event.is_local else "heard", event.properties["name"])

    made = Instance(url, instance)
    made.bus.subscribe("t/**", hear)
    with made.running():
        say("ready", str(os.getpid()))
        for line in sys.stdin:
            try:
                made.bus.send(named(line.strip()))
                say("sent", line.strip())
            except EventNotStored:
                say("unsure", line.strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
