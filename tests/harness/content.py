"""The content service in process, for tests that speak HTTP to it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from packhorse.blobs.open import open_blobs
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.principal import Principal
from packhorse_services.content.app import create

TOKENS = {
    "admin": Principal("admin", frozenset({"admin"})),
    "reader": Principal("reader", frozenset({"content:read"})),
    "site": Principal("site", frozenset({"content:read", "content:write"}), ("/content/site",)),
    "nowhere": Principal("nowhere", frozenset({"content:read"}), ()),
}
PAGE = {"type": "page", "properties": {"title": "Home"}}
MAX_BLOB_BYTES = 1_000_000

Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]
Serve = Callable[[Scenario], None]


class KnownTokens:
    """Tokens that are their owners' names."""

    async def principal(self, token: str) -> Principal | None:
        return TOKENS.get(token)


def serve_content(scenario: Scenario, database_url: str, blobs: Path) -> None:
    """Run a scenario against the service; its client is the admin's."""

    async def run() -> None:
        store = open_blobs(str(blobs))
        authenticator = Authenticator(KnownTokens())
        app = create(database_url, store, authenticator, max_blob_bytes=MAX_BLOB_BYTES)
        async with app.router.lifespan_context(app), client_of(app) as client:
            await scenario(client)
        store.close()

    asyncio.run(run())


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Lend a client of any ASGI application, with the admin's token."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost", headers=as_("admin")
    ) as client:
        yield client


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
