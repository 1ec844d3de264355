"""The content service over HTTP, in process, on a real Postgres and a folder of blobs."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from packhorse.blobs.api import BlobCorrupt
from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import parent_of
from packhorse.db.connect import connect
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


class KnownTokens:
    async def principal(self, token: str) -> Principal | None:
        return TOKENS.get(token)


@pytest.fixture
def serve(
    database_url: str, tmp_path: Path
) -> Callable[[Callable[[httpx.AsyncClient], Awaitable[None]]], None]:
    """Run an async scenario against the service."""

    def run(scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        asyncio.run(_serve(scenario, database_url, tmp_path / "blobs"))

    return run


@asynccontextmanager
async def client_of(app: Any, token: str = "admin") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://author", headers=headers
    ) as client:
        yield client


async def _serve(scenario: Any, database_url: str, blobs: Path) -> None:
    store = open_blobs(str(blobs))
    app = create(database_url, store, Authenticator(KnownTokens()), max_blob_bytes=1_000_000)
    async with app.router.lifespan_context(app), client_of(app) as client:
        await scenario(client)
    store.close()


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_a_node_is_written_read_changed_and_removed(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/content/site/home"
        created = await client.put(url, json=PAGE)
        assert created.status_code == 201, created.text
        assert created.json()["path"] == "/content/site/home"
        assert created.json()["etag"] == created.headers["etag"]

        read = await client.get(url)
        assert read.status_code == 200
        assert read.headers["etag"] == created.headers["etag"]
        assert read.json() == {**PAGE, "path": "/content/site/home", "binaries": {}}
        above = await client.get("/content/content/site")
        assert above.json()["type"] == "folder"

        again = await client.put(url, json=PAGE)
        assert (again.status_code, again.headers["etag"]) == (200, created.headers["etag"])
        other = await client.put(url, json={"type": "page"})
        assert other.headers["etag"] != created.headers["etag"]

        assert (await client.delete("/content/content")).json() == {"nodes": 3}
        for method in ("get", "delete"):
            assert (await getattr(client, method)(url)).status_code == 404
        assert (await client.patch(url, json={})).status_code == 404

    serve(scenario)


def test_preconditions(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/a"
        assert (await client.put(url, json=PAGE, headers={"If-Match": "*"})).status_code == 412
        assert (await client.put(url, json=PAGE, headers={"If-Match": '"x"'})).status_code == 412
        first = await client.put(url, json=PAGE, headers={"If-None-Match": "*"})
        assert first.status_code == 201
        assert (await client.put(url, json=PAGE, headers={"If-None-Match": "*"})).status_code == 412
        etag = first.headers["etag"]

        unchanged = await client.get(url, headers={"If-None-Match": f'"x", W/{etag}'})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == etag
        assert (await client.get(url, headers={"If-None-Match": '"x"'})).status_code == 200

        stale = {"If-Match": '"0000"'}
        weak = {"If-Match": f"W/{etag}"}
        for headers in (stale, weak):
            assert (await client.put(url, json=PAGE, headers=headers)).status_code == 412
            assert (await client.patch(url, json={}, headers=headers)).status_code == 412
            assert (await client.delete(url, headers=headers)).status_code == 412
        second = await client.put(url, json={"type": "other"}, headers={"If-Match": f'"x",{etag}'})
        assert second.status_code == 200
        assert (await client.delete(url, headers={"If-Match": etag})).status_code == 412
        current = {"If-Match": second.headers["etag"]}
        assert (await client.delete(url, headers=current)).status_code == 200
        for headers in ({"If-Match": "nonsense"}, {"If-None-Match": '"x"'}):
            assert (await client.put(url, json=PAGE, headers=headers)).status_code == 400

    serve(scenario)


def test_only_one_of_many_that_expect_the_same_version_writes(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/a/b"
        bodies = [{"type": "page", "properties": {"writer": number}} for number in range(8)]
        headers = {"If-None-Match": "*"}
        created = await asyncio.gather(
            *(client.put(url, json=body, headers=headers) for body in bodies)
        )
        assert sorted(answer.status_code for answer in created) == [201] + [412] * 7
        current = {"If-Match": (await client.get(url)).headers["etag"]}
        bodies = [{"properties": {"patcher": number}} for number in range(8)]
        patched = await asyncio.gather(
            *(client.patch(url, json=body, headers=current) for body in bodies)
        )
        assert sorted(answer.status_code for answer in patched) == [200] + [412] * 7

    serve(scenario)


def test_a_removal_between_writes_leaves_no_node_without_its_folders(
    serve: Any, database_url: str
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(15):
            writes = [client.put(f"/content/a/{n % 3}/{n}", json=PAGE) for n in range(6)]
            removals = [client.delete("/content/a"), client.delete("/content/a/1")]
            mixed = [*writes[:3], removals[0], *writes[3:], removals[1]]
            for answer in await asyncio.gather(*mixed):
                assert answer.status_code in (200, 201, 404), answer.text

    serve(scenario)
    with contextlib.closing(connect(database_url, "tests")) as conn:
        paths = {node.path for node in tree.stream(conn, "/")}
    assert {parent_of(path) for path in paths} <= {*paths, "/"}


# Target, patch and result of RFC 7396, appendix A, where both are objects.
MERGES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


def test_patch_is_a_merge_patch(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for target, patch, result in MERGES:
            await client.put("/content/a", json={"type": "page", "properties": target})
            answer = await client.patch(
                "/content/a",
                content=json.dumps({"properties": patch}),
                headers={"Content-Type": "application/merge-patch+json"},
            )
            assert answer.status_code == 200, answer.text
            read = (await client.get("/content/a")).json()
            assert (read["properties"], read["type"]) == (result, "page")
        await client.patch("/content/a", json={"type": "article"})
        assert (await client.get("/content/a")).json()["type"] == "article"

    serve(scenario)


def test_numbers_keep_every_digit(serve: Any) -> None:
    exact = '{"a": 1.50, "b": 12345678901234567890123, "c": 0.1234567890123456789012345678}'

    async def scenario(client: httpx.AsyncClient) -> None:
        body = '{"type": "page", "properties": ' + exact + "}"
        headers = {"Content-Type": "application/json"}
        await client.put("/content/a", content=body, headers=headers)
        await client.patch("/content/a", json={"properties": {"d": 1}})
        text = (await client.get("/content/a")).text
        for number in ("1.50", "12345678901234567890123", "0.1234567890123456789012345678"):
            assert number in text

    serve(scenario)


def test_children_page_by_page(serve: Any) -> None:
    names = ["a", "a b", "a-b", "a.b", "a0", "a_b", "a%b", "é", "z", "~", "\U0001f40e"]

    async def scenario(client: httpx.AsyncClient) -> None:
        for name in names:
            quoted = httpx.URL("http://x/").copy_with(path=f"/content/p/{name}/deep/er").raw_path
            answer = await client.put(quoted.decode(), json=PAGE)
            assert answer.status_code == 201, answer.text
        await client.put("/content/p-other", json=PAGE)

        found: list[str] = []
        url: str | None = "/children/p?limit=2"
        while url is not None:
            answer = await client.get(url)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert len(page["children"]) <= 2
            found += [child["path"] for child in page["children"]]
            assert {child["type"] for child in page["children"]} == {"folder"}
            url = page["next"]
            assert ("link" in answer.headers) == (url is not None)
            if url is not None:
                assert answer.headers["link"] == f'<{url}>; rel="next"'
        assert found == sorted(f"/p/{name}" for name in names)

        root = (await client.get("/children/")).json()
        assert [child["path"] for child in root["children"]] == ["/p", "/p-other"]
        assert (await client.get("/children/p-other")).json() == {"children": [], "next": None}
        assert (await client.get("/children/nothing")).status_code == 404
        for query in ("limit=0", "limit=1001", "limit=x", "after=a/b", "after=..", "colour=red"):
            assert (await client.get(f"/children/p?{query}")).status_code == 422, query

    serve(scenario)


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
def test_r29_paths_are_refused_and_never_repaired(serve: Any, path: str) -> None:
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


def test_r29_bytes_that_are_no_text_are_refused(serve: Any) -> None:
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
def test_r30_what_no_repository_holds_is_refused(serve: Any, body: str) -> None:
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


def test_odd_bodies(serve: Any) -> None:
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


def test_r23_scopes_and_roots(serve: Any) -> None:
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


def test_m5_removing_a_path_leaves_those_that_look_like_it(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for name in ("a_b", "axb", "a%25", "a%25b", "a-b", "ab"):
            assert (await client.put(f"/content/{name}/x", json=PAGE)).status_code == 201
        assert (await client.delete("/content/a_b")).json() == {"nodes": 2}
        assert (await client.delete("/content/a%25")).json() == {"nodes": 2}
        left = (await client.get("/children/")).json()["children"]
        assert [child["path"] for child in left] == ["/a%b", "/a-b", "/ab", "/axb"]

    serve(scenario)


def test_binaries_in_and_out(serve: Any) -> None:
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
        assert (await client.get("/binaries/logo.png?name=other")).status_code == 404

        head = await client.head(url)
        assert (head.headers["content-length"], head.content) == (str(len(content)), b"")
        whole = await client.get(url, params={"media_type": "text/css"})
        assert whole.content == content
        assert whole.headers["content-type"] == "text/css"
        assert "immutable" in whole.headers["cache-control"]
        etag = whole.headers["etag"]
        assert (await client.get(url, headers={"If-None-Match": etag})).status_code == 304

    serve(scenario)


def test_ranges(serve: Any) -> None:
    content = bytes(range(256))

    async def scenario(client: httpx.AsyncClient) -> None:
        url = f"/blobs/{digest_of(content)}"
        await client.put(url, content=content)
        etag = (await client.head(url)).headers["etag"]
        for asked, expected in (
            ("bytes=0-0", content[:1]),
            ("bytes=10-", content[10:]),
            ("bytes=-5", content[-5:]),
            ("bytes=-5000", content),
            ("bytes=5-9999", content[5:]),
        ):
            answer = await client.get(url, headers={"Range": asked, "If-Range": etag})
            assert (answer.status_code, answer.content) == (206, expected), asked
            start = len(content) - len(expected) if asked != "bytes=0-0" else 0
            end = start + len(expected) - 1
            assert answer.headers["content-range"] == f"bytes {start}-{end}/256"
        for asked in ("bytes=256-", "bytes=-0", "bytes=9999-"):
            answer = await client.get(url, headers={"Range": asked})
            assert answer.status_code == 416
            assert answer.headers["content-range"] == "bytes */256"
        for asked in ("bytes=9-5", "bytes=0-1,3-4", "lines=1-2", "bytes=x"):
            assert (await client.get(url, headers={"Range": asked})).status_code == 200
        other = await client.get(url, headers={"Range": "bytes=0-0", "If-Range": '"other"'})
        assert other.status_code == 200

    serve(scenario)


def test_r7_an_upload_that_is_not_what_it_says_leaves_nothing(serve: Any) -> None:
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


def test_a_binary_that_rotted_breaks_the_connection(serve: Any, tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        digest = digest_of(b"right")
        await client.put(f"/blobs/{digest}", content=b"right")
        stored = tmp_path / "blobs" / "binaries" / digest[7:9] / digest[7:]
        stored.write_bytes(b"wrong")
        with pytest.raises(BlobCorrupt):
            await client.get(f"/blobs/{digest}")

    serve(scenario)


def test_ready_and_described(serve: Any) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        ready = await client.get("/readyz?verbose")
        assert ready.json()["checks"] == {"database": "ok", "blobs": "ok"}
        described = (await client.get("/openapi.json")).json()
        assert set(described["paths"]) == {
            "/content/{path}",
            "/children/{path}",
            "/binaries/{path}",
            "/blobs/{digest}",
        }
        put = described["paths"]["/content/{path}"]["put"]
        assert {"201", "412", "413", "422"} <= set(put["responses"])

    serve(scenario)
