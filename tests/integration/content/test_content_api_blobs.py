"""Binaries over HTTP: in, out, in parts, and wrong ones."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from packhorse.blobs.api import BlobCorrupt
from tests.harness.content import Serve, digest_of


def test_binaries_in_and_out(serve: Serve) -> None:
    content = bytes(range(256)) * 1000

    async def scenario(client: httpx.AsyncClient) -> None:
        digest = digest_of(content)
        url = f"/blobs/{digest}"
        node = {
            "type": "file",
            "binaries": {
                "data": {"digest": digest, "length": len(content), "media_type": "image/png"}
            },
        }
        early = await client.put("/content/logo.png", json=node)
        assert early.status_code == 422
        assert early.json()["errors"][0]["pointer"] == "#/binaries/data"
        assert (await client.get(url)).status_code == 404
        assert (await client.head(url)).status_code == 404

        assert (await client.put(url, content=content)).status_code == 201
        assert (await client.put(url, content=content)).status_code == 200
        wrong = {**node, "binaries": {"data": {**node["binaries"]["data"], "length": 1}}}
        assert (await client.put("/content/logo.png", json=wrong)).status_code == 422
        assert (await client.put("/content/logo.png", json=node)).status_code == 201
        assert (await client.get("/content/logo.png")).json()["binaries"] == node["binaries"]

        direct = await client.get("/binaries/logo.png")
        assert (direct.status_code, direct.content) == (200, content)
        assert direct.headers["content-type"] == "image/png"
        assert "no-cache" in direct.headers["cache-control"]
        assert (await client.get("/binaries/logo.png?name=other")).status_code == 404

        head = await client.head(url)
        assert (head.headers["content-length"], head.content) == (str(len(content)), b"")
        whole = await client.get(url, params={"media_type": "text/css"})
        assert whole.content == content
        assert whole.headers["content-type"] == "text/css"
        assert "immutable" in whole.headers["cache-control"]
        etag = whole.headers["etag"]
        for known in (etag, f'"other", W/{etag}', "*"):
            assert (await client.get(url, headers={"If-None-Match": known})).status_code == 304
        assert (await client.get(url, headers={"If-None-Match": f"x{etag}"})).status_code == 400

    serve(scenario)


def test_ranges(serve: Serve) -> None:
    content = bytes(range(256))

    async def scenario(client: httpx.AsyncClient) -> None:
        url = f"/blobs/{digest_of(content)}"
        await client.put(url, content=content)
        etag = (await client.head(url)).headers["etag"]
        for requested, expected in (
            ("bytes=0-0", content[:1]),
            ("bytes=10-", content[10:]),
            ("bytes=-5", content[-5:]),
            ("bytes=-5000", content),
            ("bytes=5-9999", content[5:]),
        ):
            answer = await client.get(url, headers={"Range": requested, "If-Range": etag})
            assert (answer.status_code, answer.content) == (206, expected), requested
            start = len(content) - len(expected) if requested != "bytes=0-0" else 0
            end = start + len(expected) - 1
            assert answer.headers["content-range"] == f"bytes {start}-{end}/256"
        for requested in ("bytes=256-", "bytes=-0", "bytes=9999-"):
            answer = await client.get(url, headers={"Range": requested})
            assert answer.status_code == 416
            assert answer.headers["content-range"] == "bytes */256"
        for requested in ("bytes=9-5", "bytes=0-1,3-4", "lines=1-2", "bytes=x"):
            assert (await client.get(url, headers={"Range": requested})).status_code == 200
        other = await client.get(url, headers={"Range": "bytes=0-0", "If-Range": '"other"'})
        assert other.status_code == 200

    serve(scenario)


def test_r7_an_upload_that_is_not_what_it_says_leaves_nothing(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = f"/blobs/{digest_of(b'right')}"
        wrong = await client.put(url, content=b"wrong")
        assert wrong.status_code == 422
        assert (await client.head(url)).status_code == 404
        large = await client.put(url, content=b"x" * 1_000_001)
        assert large.status_code == 413

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 100_000

        assert (await client.put(url, content=endless())).status_code == 413
        assert (await client.head(url)).status_code == 404
        for digest in ("sha256:0", "0" * 64, "sha256:" + "A" * 64, "md5:" + "0" * 32):
            assert (await client.put(f"/blobs/{digest}", content=b"")).status_code == 422

    serve(scenario)


def test_a_binary_that_rotted_breaks_the_connection(serve: Serve, tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        digest = digest_of(b"right")
        await client.put(f"/blobs/{digest}", content=b"right")
        stored = tmp_path / "blobs" / "binaries" / digest[7:9] / digest[7:]
        stored.write_bytes(b"wrong")
        with pytest.raises(BlobCorrupt):
            await client.get(f"/blobs/{digest}")

    serve(scenario)
