"""The content service over HTTP: nodes, preconditions, listings."""

import asyncio
import contextlib
import json

import httpx

from packhorse.content import tree
from packhorse.content.node import parent_of
from packhorse.db.connect import connect
from tests.harness.content import PAGE, Serve
from tests.harness.depth import at_depth


def test_a_node_is_written_read_changed_and_removed(serve: Serve) -> None:
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


def test_preconditions(serve: Serve) -> None:
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
        for tag in ("*", '"x"'):
            for method in ("PATCH", "DELETE"):
                body = {} if method == "PATCH" else None
                given = {"If-None-Match": tag}
                refused = await client.request(method, url, json=body, headers=given)
                assert (refused.status_code, "PUT only" in refused.text) == (400, True)

    serve(scenario)


def test_only_one_of_many_that_expect_the_same_version_writes(serve: Serve) -> None:
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


def test_who_writes_a_node_does_not_wait_for_who_writes_the_folder_above(
    serve: Serve, database_url: str
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        await client.put("/content/a/b", json=PAGE)
        with contextlib.closing(connect(database_url, "tests")) as other:
            other.execute("UPDATE content.node SET type = 'page' WHERE path = '/a'")
            assert (await client.put("/content/a/c", json=PAGE)).status_code == 201
            written = await client.post("/files", json={"files": [], "folders": ["/a/d"]})
            assert written.status_code == 200

    serve(scenario)


def test_a_removal_between_writes_leaves_no_node_without_its_folders(
    serve: Serve, database_url: str
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(at_depth(15, 8)):
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


def test_patch_is_a_merge_patch(serve: Serve) -> None:
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


def test_numbers_keep_every_digit(serve: Serve) -> None:
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


def test_children_page_by_page(serve: Serve) -> None:
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


def test_ready_and_described(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        ready = await client.get("/readyz?verbose")
        assert ready.json()["checks"] == {"database": "ok", "blobs": "ok"}
        described = (await client.get("/openapi.json")).json()
        assert set(described["paths"]) == {
            "/acts",
            "/content/{path}",
            "/children/{path}",
            "/binaries/{path}",
            "/blobs/{digest}",
            "/blobs",
            "/blob-archives",
            "/files",
            "/subtrees/{path}",
            "/digests/{path}",
        }
        put = described["paths"]["/content/{path}"]["put"]
        assert {"201", "412", "413", "422"} <= set(put["responses"])

    serve(scenario)
