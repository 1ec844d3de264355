"""What a large result is read with, without a database."""

from types import SimpleNamespace
from typing import Any

from packhorse.db.rows import not_idle
from tests.harness.clock import ManualClock


def test_the_server_hears_every_second_of_who_reads_a_few_large_things() -> None:
    clock, sent = ManualClock(), list[str]()
    connection: Any = SimpleNamespace(execute=sent.append)
    heard = []
    for _ in not_idle(connection, range(7), clock=clock.monotonic):
        heard.append(len(sent))
        clock.advance(0.5)
    assert heard == [0, 0, 1, 1, 2, 2, 3]
