"""Who wrote content is a row of the audit, in the transaction of the write."""

from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from packhorse.bookkeeping import audit_rows
from packhorse.db.connect import connect
from packhorse.runtime.paging import write_cursor
from tests.harness.author import Author
from tests.harness.content import PAGE, Serve, as_

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def acts(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await client.get(f"/acts{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["acts"]
    return found


def test_each_write_says_who_did_it_and_from_where(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/content/site/home"
        traced = {**as_("site"), "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await client.put(url, json=PAGE, headers=traced)
        await client.patch(url, json={"type": "other"})
        await client.post("/files", json={"files": [], "folders": ["/content/site/more"]})
        await client.delete("/content/content/site")
        newest_first = [(one["operation"], one["caller"]) for one in await acts(client)]
        assert newest_first == [
            ("deleteNode", "admin"),
            ("putFiles", "admin"),
            ("patchNode", "admin"),
            ("putNode", "site"),
        ]
        _, files, _, first = await acts(client)
        assert files["about"] == {"folders": 1, "files": 0, "first": "/content/site/more"}
        assert (first["method"], first["object"], first["trace"]) == ("PUT", url, TRACE)
        assert first["address"] == "127.0.0.1"
        assert [one["id"] for one in await acts(client, "?caller=site")] == [first["id"]]
        assert await acts(client, f"?until={first['at'].replace('+', '%2B')}") == [first]
        assert len(await acts(client, "?limit=2")) == 2

    serve(scenario)


def test_acts_of_one_moment_come_page_by_page(serve: Serve, database_url: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        with connect(database_url, "test") as connection:
            connection.execute(
                "INSERT INTO bookkeeping.audit (happened_at, subscriber, publisher_agent,"
                " command_id, issued_by, action) SELECT now(), '', '', '', 'one', 'x'"
                " FROM generate_series(1, 5)"
            )
        seen, url = [], "/acts?caller=one&since=2026-01-01T00:00:00Z&limit=2"
        while url:
            answer = await client.get(url)
            seen += [one["id"] for one in answer.json()["acts"]]
            url = answer.json()["next"]
            assert answer.headers.get("Link") == (f'<{url}>; rel="next"' if url else None)
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == 5
        for place in ("", "never 1", "2026-01-01T00:00:00Z", f"2026-01-01T00:00:00Z {2**63}"):
            assert (await client.get(f"/acts?cursor={write_cursor(place)}")).status_code == 422

    serve(scenario)


def test_what_was_not_done_is_no_act(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        url = "/content/content/a"
        assert (await client.put(url, json=PAGE, headers={"If-Match": '"x"'})).status_code == 412
        assert (await client.put(url, json=PAGE, headers=as_("reader"))).status_code == 403
        assert (await client.delete(url)).status_code == 404
        large = {"type": "page", "properties": {"text": "x" * 1_040_000, "more": "y" * 10_000}}
        assert (await client.put(url, json=large)).status_code in (413, 422)
        assert (await client.get("/content/content")).status_code == 404
        assert await acts(client) == []

    serve(scenario)


def test_acts_are_for_an_admin(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for token, status in (("site", 403), ("nobody", 401), ("admin", 200)):
            assert (await client.get("/acts", headers=as_(token))).status_code == status

    serve(scenario)


def test_what_is_older_than_a_month_is_forgotten(
    serve: Serve, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        with connect(database_url, "test") as connection:
            for command, age in (("", "31 days"), ("", "29 days"), ("c1", "31 days")):
                connection.execute(
                    "INSERT INTO bookkeeping.audit (happened_at, subscriber, publisher_agent,"
                    " command_id, issued_by, action) VALUES (now() - %s::interval, '', '', %s,"
                    " 'old', 'x')",
                    (age, command),
                )
        monkeypatch.setattr(audit_rows, "_FORGETS", 1.0)
        await client.put("/content/a", json=PAGE)
        assert [one["caller"] for one in await acts(client)] == ["admin", "old"]
        with connect(database_url, "test") as connection:
            query = "SELECT count(*) FROM bookkeeping.audit WHERE command_id = 'c1'"
            assert connection.execute(query).fetchone() == (1,), "commands are kept"

    serve(scenario)


def test_an_import_straight_into_the_database_says_whose_login_it_was(
    author: Author, tmp_path: Path, serve: Serve
) -> None:
    (tmp_path / "in" / "below").mkdir(parents=True)
    (tmp_path / "in" / "below" / "a.txt").write_text("a")
    author.run("import", tmp_path / "in", "--at", "/site")
    author.run("import", tmp_path / "in", "--at", "/site")  # nothing has changed

    async def scenario(client: httpx.AsyncClient) -> None:
        found = [one for one in await acts(client) if one["operation"] == "import"]
        [file] = [one for one in found if one["about"]["files"]]
        assert file["object"] == "/content/site/below/a.txt"
        assert file["caller"] == psycopg.conninfo.conninfo_to_dict(author.url)["user"]

    serve(scenario)
