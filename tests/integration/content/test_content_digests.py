"""Digests of a subtree over HTTP: in order, page after page, within bounds."""

import httpx
import pytest

from tests.harness.content import Serve, as_


def test_digests_of_a_subtree_come_in_order_and_say_what_changed(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        async def put(path: str, **properties: object) -> None:
            body = {"type": "page", "properties": properties}
            assert (await client.put(f"/content{path}", json=body)).is_success

        async def digests(url: str) -> dict[str, str]:
            found = {}
            while url:
                page = (await client.get(url)).json()
                found |= {one["path"]: one["digest"] for one in page["nodes"]}
                url = page["next"]
            return found

        for path in ("/a", "/a/b", "/a/b/c", "/a-b", "/a/é"):
            await put(path, n=1)
        before = await digests("/digests/a?limit=2")
        assert list(before) == ["/a", "/a/b", "/a/b/c", "/a/é"]
        assert len(set(before.values())) == 1, "they are alike, whatever their paths"
        assert await digests("/digests/?limit=5000") == before | {"/a-b": before["/a"]}
        some = await digests("/digests/a?after=/a&up_to=/a/b/c&limit=1")
        assert list(some) == ["/a/b", "/a/b/c"]
        assert await digests("/digests/none") == {}

        await put("/a/b", n=2)
        after = await digests("/digests/a")
        assert {path for path in before if before[path] != after[path]} == {"/a/b"}
        for path, more in (
            ("/w", {"cq:x": 1, "own": 2}),
            ("/w/a", {"own": 2}),
            ("/w/b", {"own": 3}),
        ):
            await put(path, **more)
        without = await digests("/digests/w?without=cq:*&without=none&limit=2")
        assert list(without) == ["/w", "/w/a", "/w/b"]
        assert without["/w"] == without["/w/a"] != without["/w/b"]
        assert await digests("/digests/w?without=own&without=cq:x") == dict.fromkeys(
            without, (await digests("/digests/w/b?without=ow*"))["/w/b"]
        )
        wrong = ("without=%00", "without=", "without=*", "without=a*b")
        for url in ("after=/b", "up_to=/a-b", "limit=5001", "after=a", *wrong):
            assert (await client.get(f"/digests/a?{url}")).status_code == 422
        assert (await client.get("/digests/a", headers=as_("site"))).status_code == 403

    serve(scenario)


def test_a_page_of_large_nodes_ends_by_their_size(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse.content.digest_routes._PAGE_BYTES", 50_000)
    monkeypatch.setattr("packhorse.content.digest_routes._FETCH", "FETCH FORWARD 1 FROM digests")

    async def scenario(client: httpx.AsyncClient) -> None:
        body = {"type": "page", "properties": {"text": "x" * 40_000}}
        for path in ("/a", "/a/b", "/a/c", "/a/d"):
            assert (await client.put(f"/content{path}", json=body)).is_success
        pages, url = [], "/digests/a?limit=5000&up_to=/a/d"
        while url:
            page = (await client.get(url)).json()
            pages.append([one["path"] for one in page["nodes"]])
            url = page["next"]
        assert pages == [["/a", "/a/b"], ["/a/c", "/a/d"], []]

    serve(scenario)
