"""What the content service refuses: paths, bodies, callers."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from packhorse.blobs import routes as blob_routes
from packhorse.blobs.open import open_blobs
from packhorse.content import routes as content_routes
from packhorse.db.connect import async_pool
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.readiness import Readiness
from tests.harness.content import PAGE, Serve, as_, client_of, digest_of


@pytest.mark.parametrize(
    "path",
    [
        "a//b",
        "a/",
        "/a",
        "a/../b",
        "a/%2e%2e/b",
        "a/%2E/b",
        "a%2Fb",
        "a%00b",
        "a%09b",
        "a%7Fb",
        "a%C2%85b",
        "x" * 2048,
    ],
)
def test_r29_paths_are_refused_and_never_repaired(serve: Serve, path: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        app = client._transport.app  # type: ignore[attr-defined]
        for view in ("content", "children", "binaries"):

            async def as_sent(scope: Any, receive: Any, send: Any, view: str = view) -> None:
                """Undo what the client repairs."""
                raw = f"/{view}/{path}"
                repaired = {"raw_path": raw.encode(), "path": unquote(raw)}
                await app({**scope, **repaired}, receive, send)

            async with client_of(as_sent) as direct:
                answer = await direct.get("/")
            assert answer.status_code == 422, (view, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"

    serve(scenario)


def test_r29_bytes_that_are_no_text_are_refused(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for path in ("%FF", "%ED%A0%80", "a/%C0%AF"):
            assert (await client.get(f"/content/{path}")).status_code == 400

    serve(scenario)


@pytest.mark.parametrize(
    "body",
    [
        '{"type": "page", "properties": {"a": "\\u0000"}}',
        '{"type": "page", "properties": {"\\u0000": 1}}',
        '{"type": "page", "properties": {"a": "\\ud800"}}',
        '{"type": "page", "properties": {"a": NaN}}',
        '{"type": "page", "properties": {"a": -Infinity}}',
        '{"type": "page", "properties": {"a": 1e309}}',
        '{"type": "page", "properties": {"a": 1e131071}}',
        '{"type": "page", "properties": {"a": 1e-400}}',
        '{"type": "page", "properties": {"a": ' + "9" * 401 + "}}",
        '{"type": "page", "properties": {"a": ' + "9" * 5000 + "}}",
        '{"type": "page", "properties": {"a": 1, "a": 2}}',
        '{"type": "page", "properties": {"a": ' + "[" * 101 + "]" * 101 + "}}",
        '{"type": "page", "properties": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"type": "page", "properties": [1]}',
        '{"type": "page", "properties": null}',
        '{"type": "page", "propertys": {}}',
        '{"type": ""}',
        '{"type": "a\\nb"}',
        '{"type": 1}',
        '{"properties": {}}',
        '{"type": "page", "binaries": {"a": {"digest": "sha256:0", "length": 1}}}',
        "[]",
        '"text"',
        "{",
        "",
        '{"type": "page", "properties": {"a": [' + "1e308," * 50_000 + "1]}}",
    ],
)
def test_r30_what_no_repository_holds_is_refused(serve: Serve, body: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await client.put("/content/a", content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text[:500]
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await client.get("/content/a")).status_code == 404
        await client.put("/content/a", json=PAGE)
        if '"propert' in body and '"properties": {}' not in body:
            answer = await client.patch("/content/a", content=body, headers=headers)
            assert answer.status_code in (400, 422), answer.text[:500]
        assert (await client.get("/content/a")).json()["properties"] == PAGE["properties"]

    serve(scenario)


def test_odd_bodies(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url, text = "/content/a", json.dumps(PAGE)
        utf16 = await client.put(
            url, content=text.encode("utf-16"), headers={"Content-Type": "application/json"}
        )
        assert utf16.status_code == 400
        plain = await client.put(url, content=text, headers={"Content-Type": "text/plain"})
        assert plain.status_code == 415
        large = await client.put(url, json={"type": "page", "properties": {"a": "x" * 1_100_000}})
        assert large.status_code == 413
        assert (await client.put("/content/", json=PAGE)).status_code == 422
        assert (await client.delete("/content/")).status_code == 422
        assert (await client.post(url, json=PAGE)).status_code == 405

    serve(scenario)


def test_r23_scopes_and_roots(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for path in ("/content/content/site/a", "/content/content/site-secret/a"):
            assert (await client.put(path, json=PAGE)).status_code == 201
        inside, outside = "/content/content/site/a", "/content/content/site-secret/a"
        for method, body in (("PUT", PAGE), ("PATCH", {}), ("DELETE", None)):
            for token, path, status in (
                ("reader", inside, 403),
                ("site", outside, 403),
                ("nobody", inside, 401),
                ("site", inside, 200),
            ):
                answer = await client.request(method, path, json=body, headers=as_(token))
                assert answer.status_code == status, (method, token, path, answer.text)
        await client.put(inside, json=PAGE)
        for view in ("/content", "/children", "/binaries"):
            for token, path, status in (
                ("site", "/content/site-secret/a", 403),
                ("site", "/content", 403),
                ("nowhere", "/content/site/a", 403),
                ("nobody", "/content/site/a", 401),
            ):
                answer = await client.get(view + path, headers=as_(token))
                assert answer.status_code == status, (view, token, path)
        assert (await client.get(inside, headers=as_("site"))).status_code == 200
        digest = digest_of(b"x")
        put = await client.put(f"/blobs/{digest}", content=b"x", headers=as_("reader"))
        assert put.status_code == 403

    serve(scenario)


def test_removing_a_path_leaves_those_that_look_like_it(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for name in ("a_b", "axb", "a%25", "a%25b", "a-b", "ab"):
            assert (await client.put(f"/content/{name}/x", json=PAGE)).status_code == 201
        assert (await client.delete("/content/a_b")).json() == {"nodes": 2}
        assert (await client.delete("/content/a%25")).json() == {"nodes": 2}
        left = (await client.get("/children/")).json()["children"]
        assert [child["path"] for child in left] == ["/a%b", "/a-b", "/ab", "/axb"]

    serve(scenario)


def test_where_only_reading_is_mounted_a_write_is_405(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        app = create_app(ServiceDescription("copy", ""), Authenticator.off(), Readiness({}))
        pool, store = async_pool(database_url, "tests"), open_blobs(str(tmp_path / "blobs"))
        content_routes.mount(app, pool, blob_routes.serve_blob)
        blob_routes.mount(app, store)
        async with pool, client_of(app) as client:
            for method, url in (
                ("PUT", "/content/a"),
                ("PATCH", "/content/a"),
                ("DELETE", "/content/a"),
                ("PUT", f"/blobs/{digest_of(b'x')}"),
            ):
                answer = await client.request(method, url, json=PAGE)
                assert answer.status_code == 405, (method, url)
                assert answer.headers["content-type"] == "application/problem+json"
            assert (await client.get("/children/")).status_code == 200
        store.close()

    asyncio.run(scenario())
