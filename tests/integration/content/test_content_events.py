"""Changes of content at the author record their events in the same transaction (R34)."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from tests.harness.author import Author
from tests.harness.content import PAGE, Serve, digest_of
from tests.harness.subscriber import rows_of


@pytest.fixture
def watched(database_url: str) -> str:
    """The author's database, watched below /site, where a change becomes a job too."""
    with connect(database_url, "tests") as connection:
        act_as(connection, BOOKKEEPER)
        add_watch(connection, ContentWatch("tests", ["/site"], "site/changed"))
    return database_url


def reported(url: str) -> list[tuple[str, list[str], list[str]]]:
    rows: list[Any] = rows_of(
        url,
        "SELECT topic, properties FROM jobs.event "
        "WHERE topic ^@ 'packhorse/content/' ORDER BY number",
    )
    assert all(said["user"] == "admin" for _, said in rows)
    return [(topic.split("/")[-1], said["paths"], said["deep_paths"]) for topic, said in rows]


def test_r34_writes_of_one_node(serve: Serve, watched: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/site/home"
        await client.put(url, json=PAGE, headers={"If-None-Match": "*"})
        await client.put(url, json=PAGE, headers={"If-None-Match": "*"})
        await client.put(url, json=PAGE)
        await client.patch(url, json={"properties": {"title": "New"}})
        await client.put(url, json=PAGE, headers={"If-Match": '"other"'})
        await client.put("/content/elsewhere", json=PAGE)
        await client.delete(url)
        await client.delete(url)

    serve(scenario)
    assert reported(watched) == [
        ("added", ["/site/home"], []),
        ("changed", ["/site/home"], []),
        ("changed", ["/site/home"], []),
        ("removed", [], ["/site/home"]),
    ]
    jobs: list[Any] = rows_of(watched, "SELECT properties ->> 'change' FROM jobs.job ORDER BY 1")
    assert [change for (change,) in jobs] == ["added", "changed", "changed", "removed"]


def test_many_files_in_one_call(serve: Serve, watched: str) -> None:
    content = b"hello"
    body = {"digest": digest_of(content), "length": 5, "media_type": "text/plain"}

    async def scenario(client: httpx.AsyncClient) -> None:
        await client.put(f"/blobs/{body['digest']}", content=content)
        await client.post("/files", json={"files": [{**body, "path": "/site/a"}]})
        other = {**body, "media_type": "text/html"}
        files = [{**other, "path": "/site/a"}, {**body, "path": "/site/b"}]
        written = await client.post("/files", json={"files": files, "folders": ["/site/c"]})
        assert {one["state"] for one in written.json()["outcomes"]} == {"WRITTEN"}

    serve(scenario)
    assert reported(watched) == [
        ("added", ["/site/a"], []),
        ("added", ["/site/b", "/site/c"], []),
        ("changed", ["/site/a"], []),
    ]
    assert len(rows_of(watched, "SELECT FROM jobs.job")) == 3


def test_an_import_without_the_service(author: Author, watched: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a.txt").write_text("a")
    author.imported(folder, "/site")
    (folder / "sub/a.txt").write_text("b")
    author.imported(folder, "/site")
    rows: list[Any] = rows_of(
        watched,
        "SELECT topic, properties -> 'paths' FROM jobs.event WHERE topic ^@ 'packhorse/content/'",
    )
    found: dict[str, set[str]] = defaultdict(set)
    for topic, paths in rows:
        found[topic.split("/")[-1]].update(paths)
    assert "/site/sub/a.txt" in found["added"]
    assert "/site/sub" in found["added"]
    assert found["changed"] == {"/site/sub/a.txt"}


def test_a_watch_of_types_has_its_own_events_and_jobs(serve: Serve, database_url: str) -> None:
    with connect(database_url, "tests") as connection:
        act_as(connection, BOOKKEEPER)
        add_watch(connection, ContentWatch("images", ["/site"], "image/seen", ["image", "video"]))
        add_watch(connection, ContentWatch("all", ["/site/news"]))

    async def scenario(client: httpx.AsyncClient) -> None:
        for path, kind in (("news/a", "image"), ("news/b", "page"), ("c", "image")):
            await client.put(f"/content/site/{path}", json={"type": kind})
        await client.put("/content/elsewhere", json={"type": "image"})
        await client.delete("/content/site/news")

    serve(scenario)
    rows: list[Any] = rows_of(
        database_url,
        "SELECT topic, properties FROM jobs.event "
        "WHERE topic ^@ 'packhorse/content/' ORDER BY number",
    )
    found = [
        (topic.split("/")[-1], said.get("watch"), [*said["paths"], *said["deep_paths"]])
        for topic, said in rows
    ]
    assert found == [
        ("added", None, ["/site/news/a"]),
        ("added", "images", ["/site/news/a"]),
        ("added", None, ["/site/news/b"]),
        ("added", "images", ["/site/c"]),
        ("removed", None, ["/site/news"]),
        ("removed", "images", ["/site/news"]),
    ]
    jobs: list[Any] = rows_of(database_url, "SELECT properties FROM jobs.job ORDER BY number")
    assert [(one["change"], one["paths"]) for (one,) in jobs] == [
        ("added", ["/site/news/a"]),
        ("added", ["/site/c"]),
        ("removed", []),
    ]


def test_a_subtree_counts_for_the_types_in_it(author: Author) -> None:
    with author.connection() as connection:
        nodes = [Node("/dam", "folder"), Node("/dam/a", "page"), Node("/dam/b/c", "image")]
        tree.upsert(connection, nodes)
        deep = ["/dam", "/dam/a", "/dam/b/c", "/", "/none"]
        assert tree.with_types(connection, deep, ["image"]) == {"/", "/dam", "/dam/b/c"}
        assert tree.present(connection, ["/dam/a", "/none"]) == {"/dam/a": "page"}


def test_r34_a_watch_of_types_hears_that_a_node_has_another_type_now(
    serve: Serve, database_url: str
) -> None:
    with connect(database_url, "tests") as connection:
        act_as(connection, BOOKKEEPER)
        add_watch(connection, ContentWatch("images", ["/site"], types=["image"]))

    async def scenario(client: httpx.AsyncClient) -> None:
        for kind in ("image", "page", "page", "image"):
            assert (await client.put("/content/site/a", json={"type": kind})).is_success

    serve(scenario)
    assert reported(database_url) == [
        ("added", ["/site/a"], []),
        ("changed", ["/site/a"], []),
        ("changed", ["/site/a"], []),
    ]


def test_a_write_that_is_refused_records_nothing(serve: Serve, watched: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        large = {"type": "page", "properties": {f"p{n}": "x" * 60_000 for n in range(20)}}
        refused = await client.put("/content/site/large", json=large)
        assert refused.status_code in (413, 422), refused.text

    serve(scenario)
    assert reported(watched) == []
