"""The type of a problem leads to what explains it, at the service that answers with it."""

import asyncio
from pathlib import Path

import httpx
import pytest

from packhorse.runtime.problems import GENERIC
from tests.harness.openapi import SERVICES


@pytest.mark.parametrize(
    ("service", "slug", "status"),
    [("topology", "unsigned", 401), ("pipeline", "schema-changed", 503)],
)
def test_a_problem_type_is_explained(service: str, slug: str, status: int, tmp_path: Path) -> None:
    answer = asyncio.run(requested(service, f"/problems/{slug}", tmp_path))
    assert (answer.status_code, answer.json()["status"]) == (200, status)


@pytest.mark.parametrize("service", SERVICES)
def test_what_may_be_asked_for_again_says_when(service: str, tmp_path: Path) -> None:
    table = SERVICES[service](str(tmp_path)).state.problems
    silent = [
        kind.slug
        for kind in (*GENERIC.values(), *table.values())
        if kind.status in (429, 503) and kind.retry_after_s is None
    ]
    assert not silent


async def requested(service: str, path: str, folder: Path) -> httpx.Response:
    transport = httpx.ASGITransport(app=SERVICES[service](str(folder)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path)
