"""Commands while the journal is away, without a database."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from packhorse.messaging.api import JournalUnavailable
from packhorse.runtime.threads import Threads
from packhorse_services.publisher.commands.issuing import CommandIssuer

WAIT_S = 30


def test_commands_that_wait_for_the_journal_leave_threads_to_others() -> None:
    back = threading.Event()

    def identity(_topic: str) -> str:
        back.wait()
        raise JournalUnavailable("away")

    journal: Any = SimpleNamespace(identity=identity)
    queues: Any = SimpleNamespace(agent="main", subscriber=lambda name: None)
    unused: Any = None

    async def play() -> None:
        asyncio.get_running_loop().set_default_executor(Threads("few", 3))
        issuer = CommandIssuer(unused, journal, "packages", queues, unused)
        asked = [asyncio.ensure_future(issuer.retry("sub", user="u")) for _ in range(5)]
        await asyncio.sleep(0)  # all are under way
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.to_thread(lambda: None)
        finally:
            back.set()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(end) for end in ends} == {JournalUnavailable}

    asyncio.run(play())
