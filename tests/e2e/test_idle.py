"""What `packhorse up` holds while nothing happens: an operator has to plan for it."""

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness import footprint
from tests.harness.command_line import Up
from tests.harness.waiting import eventually

MOST_CONNECTIONS = 40
MOST_THREADS = 23
"""Of a publisher: 20, and three that began with its first append, large request and producer."""
WAIT_S = 240.0


def test_an_idle_stack_holds_few_connections_and_threads(up: Up) -> None:
    server = EmbeddedPostgres(DataDirectory(up.data).postgres)
    assert server.attach()

    def few() -> bool:
        pids = {"up": up.pid, **up.pids()}
        del pids["postgres"]
        threads = {name: footprint.threads(pid) for name, pid in pids.items()}
        assert max(threads.values()) <= MOST_THREADS, threads
        held = footprint.connections(server, pids)
        assert len(held) <= MOST_CONNECTIONS, sorted(map(str, held))
        return True

    eventually(few, timeout=WAIT_S, what="pools and threads have given back what the start needed")
