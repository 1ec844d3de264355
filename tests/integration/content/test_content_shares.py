"""The service of many: who sends, reads or waits for long keeps nobody else waiting (R33)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg

from packhorse.blobs.api import BlobStore, StoredBlob
from packhorse.blobs.archives import packed
from packhorse.content.tree import SHAPE_CHANGED
from tests.harness.content import PAGE, Serve, as_, digest_of
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually

TAR = {"Content-Type": "application/x-tar"}
X = digest_of(b"x")
UPLOADS_OF_ONE = 8
ARCHIVE = packed({X.removeprefix("sha256:"): b"x"})


async def until(number: int, places: list[object]) -> None:
    """Return once so many are under way."""
    while len(places) < number:
        await asyncio.sleep(0.01)


def test_r33_slow_bodies_of_one_caller_keep_nobody_waiting(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        go_on, begun = asyncio.Event(), list[object]()

        async def slowly() -> AsyncIterator[bytes]:
            begun.append(object())
            yield ARCHIVE[:512]
            await go_on.wait()
            yield ARCHIVE[512:]

        async def send(content: Any, token: str) -> int:
            headers = {**TAR, **as_(token)}
            return (await client.post("/blobs", content=content, headers=headers)).status_code

        slow = [asyncio.create_task(send(slowly(), "site")) for _ in range(4)]
        await until(4, begun)
        assert await send(ARCHIVE, "site") == 429
        assert await send(ARCHIVE, "admin") == 200
        go_on.set()
        assert await asyncio.gather(*slow) == [200] * 4
        assert await send(ARCHIVE, "site") == 200

    serve(scenario)


def test_r33_slow_uploads_of_one_caller_keep_nobody_waiting(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        go_on, begun = asyncio.Event(), list[object]()

        async def slowly() -> AsyncIterator[bytes]:
            begun.append(object())
            yield b"x"
            await go_on.wait()

        async def send(content: Any, token: str) -> int:
            return (
                await client.put(f"/blobs/{X}", content=content, headers=as_(token))
            ).status_code

        slow = [asyncio.create_task(send(slowly(), "site")) for _ in range(UPLOADS_OF_ONE)]
        await until(UPLOADS_OF_ONE, begun)
        assert await send(b"x", "site") == 429
        assert await send(b"x", "admin") == 201
        go_on.set()
        assert await asyncio.gather(*slow) == [200] * UPLOADS_OF_ONE
        assert await send(b"x", "site") == 200

    serve(scenario)


class _Slow:
    """A store whose next questions are answered once they may be."""

    def __init__(self, store: BlobStore, left: int) -> None:
        self._store, self._left = store, left
        self.begun: list[object] = []
        self.go_on = threading.Event()

    def head(self, key: str) -> StoredBlob | None:
        if len(self.begun) < self._left:
            self.begun.append(object())
            self.go_on.wait()
        return self._store.head(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_r33_slow_reading_for_one_caller_keeps_nobody_waiting(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        app: Any = client._transport.app  # type: ignore[attr-defined]
        assert (await client.post("/blobs", content=ARCHIVE, headers=TAR)).is_success
        slow = app.state.blobs = _Slow(app.state.blobs, 2)

        async def read(token: str) -> int:
            wanted = {"digests": [X]}
            answer = await client.post("/blob-archives", json=wanted, headers=as_(token))
            return answer.status_code

        try:
            reading = [asyncio.create_task(read("reader")) for _ in range(2)]
            await until(2, slow.begun)
            assert await read("reader") == 429
            assert await read("admin") == 200
        finally:
            slow.go_on.set()
        assert await asyncio.gather(*reading) == [200, 200]
        assert await read("reader") == 200

    serve(scenario)


def test_r33_who_waits_to_write_keeps_no_reader_waiting(serve: Serve, database_url: str) -> None:
    """As while a large subtree is removed, or a content of earlier is brought back."""

    async def scenario(client: httpx.AsyncClient) -> None:
        async def put(number: int) -> int:
            return (await client.put(f"/content/site/{number}", json=PAGE)).status_code

        await client.put("/content/site/page", json=PAGE)
        with psycopg.connect(database_url) as removing:
            removing.execute(SHAPE_CHANGED)
            writing = [asyncio.create_task(put(number)) for number in range(12)]
            await asyncio.to_thread(eventually, lambda: len(waiting_for_locks(database_url)) >= 4)
            assert (await client.get("/content/site/page")).status_code == 200
        assert await asyncio.gather(*writing) == [201] * 12

    serve(scenario)
