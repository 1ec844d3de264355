"""R33: who waits for distributions takes no place from those who do something."""

import asyncio
from pathlib import Path

from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import page

_OF_ONE_CALLER = 50


def test_r33_one_caller_has_a_quarter_of_the_waits(database_url: str, tmp_path: Path) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        accepted = await s.accepted("/p")
        url = f"/distributions/{accepted['id']}"
        waits = [
            asyncio.create_task(s.client.get(url, params={"wait": 60}))
            for _ in range(_OF_ONE_CALLER + 10)
        ]

        async def others_are_refused() -> bool:
            return sum(wait.done() for wait in waits) == len(waits) - _OF_ONE_CALLER

        await s.until(others_are_refused)
        assert {wait.result().status_code for wait in waits if wait.done()} == {429}
        again = await s.distribute("/p", headers={"Prefer": "wait=60"})
        assert again.status_code == 202, "it is published all the same, and answered at once"
        assert "preference-applied" not in again.headers
        other = await s.client.get(url, params={"wait": 1}, headers=as_("viewer"))
        assert other.status_code == 200
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert (await s.client.get(url, params={"wait": 1})).status_code == 200

    service = PublisherService(database_url, tmp_path)
    service.author.write(page("/p"))
    service.run(scenario)
