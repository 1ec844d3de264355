"""How far each subscriber is: bars on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Mapping
from typing import Any, Self

from packhorse_services.cli.client import output

_LINE_EVERY_S = 1.0


class SubscriberProgress:
    """Shows how many of `total` packages each subscriber has imported."""

    def __init__(self, subscribers: list[str], total: int) -> None:
        self._total = total
        self._imported = dict.fromkeys(subscribers, 0)
        self._next_line = time.monotonic() + _LINE_EVERY_S
        self._bars = output.bars()
        self._tasks = {name: self._bars.add_task(name, total=total) for name in subscribers}

    def show(self, sent: int, queues: Mapping[str, Any]) -> bool:
        """Show the state after `sent` packages; true when all is imported everywhere."""
        for queue in queues["queues"]:
            if queue["subscriber"] in self._imported and queue["length"] is not None:
                imported = max(0, sent - queue["length"])
                self._imported[queue["subscriber"]] = imported
                self._bars.update(self._tasks[queue["subscriber"]], completed=imported)
        done = all(imported == self._total for imported in self._imported.values())
        if not output.talk.is_terminal and (done or time.monotonic() >= self._next_line):
            self._next_line = time.monotonic() + _LINE_EVERY_S
            parts = [f"{name} {count}/{self._total}" for name, count in self._imported.items()]
            output.report("  " + "   ".join(parts))
        return done

    def __enter__(self) -> Self:
        """Begin to show."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what was shown last."""
        self._bars.stop()
