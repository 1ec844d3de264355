"""Ready means: send me traffic. A publisher is ready for as long as it accepts (ADR 49)."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from packhorse_services.publisher.assembly import intake_parts
from packhorse_services.publisher.publish.publishing import JournalPatience
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublisherService:
    monkeypatch.setattr(intake_parts, "JournalPatience", partial(JournalPatience, reconcile_s=0.1))
    service = PublisherService(database_url, tmp_path, outbox_packages=2, outbox_age_s=3600)
    service.author.write(*(page(f"/p{number}") for number in range(3)))
    return service


async def is_ready(s: PublisherService, status: int, **wanted: Any) -> bool:
    """Return whether `/readyz` has this status and text, which is up to a second old."""
    answer = await s.client.get("/readyz?verbose")
    reported = answer.json()
    return answer.status_code == status and all(
        reported.get(part, {}).get(name) == text
        for part, checks in wanted.items()
        for name, text in checks.items()
    )


async def is_ready_without_warnings(s: PublisherService) -> bool:
    is_all_well = await is_ready(s, 200, checks={"outbox": "ok"})
    return is_all_well and "warnings" not in (await s.get("/readyz?verbose"))


def test_it_is_ready_until_it_refuses(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.until(lambda: is_ready_without_warnings(s))
        s.journal.away = True
        away = {"journal": "JournalUnavailable"}
        for number in range(2):
            await s.until(lambda: is_ready(s, 200, checks={"outbox": "ok"}, warnings=away))
            assert (await s.accepted(f"/p{number}"))["state"] == "ACCEPTED"
        await s.until(lambda: is_ready(s, 503, checks={"outbox": "OutboxFull"}, warnings=away))
        refused = await s.distribute("/p2")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        for probe in ("/livez", "/startupz"):
            assert (await s.client.get(probe)).status_code == 200
        s.journal.away = False
        await s.until(lambda: is_ready(s, 200, checks={"outbox": "ok"}))

    service.run(scenario)
