"""Folders and ZIP files over HTTP: as on the database, through faults, without its login."""

import asyncio
import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from packhorse.blobs.archives import packed, unpacked
from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.runtime.auth import Authenticator
from packhorse_services.content.app import create
from tests.harness.author import Author, check_binaries, files_below, some_content
from tests.harness.content import KnownTokens, Serve, as_, digest_of
from tests.harness.filevault import described, files, package
from tests.harness.waiting import eventually


class Faulty:
    """Passes requests on; of every three, one is answered 503 and one's answer is lost."""

    def __init__(self, app: Any) -> None:
        self.app, self.state = app, app.state
        self.faults = False
        self.requests = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests += scope["type"] == "http"
        fault = self.requests % 3 if self.faults else 0
        if fault == 1:
            headers = [(b"retry-after", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body"})
        elif fault == 2:

            async def cut(message: Any) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                elif message.get("body"):  # half of it, and the connection ends
                    half = {**message, "body": message["body"][: len(message["body"]) // 2]}
                    await send({**half, "more_body": True})
                    raise RuntimeError("the rest is lost")

            await self.app(scope, receive, cut)
        else:
            await self.app(scope, receive, send)


@contextmanager
def serving(author: Author) -> Iterator[tuple[str, Faulty]]:
    store = open_blobs(author.blobs_url)
    app = Faulty(create(author.url, store, Authenticator(KnownTokens()), max_blob_bytes=2**40))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        eventually(lambda: server.started, what="the service")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", app
    finally:
        server.should_exit = True
        thread.join()
        store.close()


@pytest.fixture
def service(author: Author) -> Iterator[tuple[str, Faulty]]:
    with author.connection():
        pass
    with serving(author) as served:
        yield served


def test_files_go_in_and_out_over_http_through_lost_answers(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    url, app = service
    content = some_content(tmp_path / "in")
    author.environment.pop("PACKHORSE_DATABASE_URL")
    author.environment |= {"PACKHORSE_SERVER": url, "PACKHORSE_TOKEN": "admin"}
    app.faults = True
    first = author.imported(content, "/content/site")
    assert first["files"] + first["unchanged"] == 61, "what was written is sent again as well"
    again = author.imported(content, "/content/site")
    assert (again["files"], again["unchanged"], again["refused"]) == (0, 61, 0)
    author.run("export", "/content/site", tmp_path / "out")
    app.faults = False
    author.run("export", "/content/site", tmp_path / "out.zip", "--server", url)
    assert files_below(tmp_path / "out") == files_below(content)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        archive.extractall(tmp_path / "unzipped")
    assert files_below(tmp_path / "unzipped") == files_below(content)
    assert author.imported(tmp_path / "out.zip", "/content/site")["unchanged"] == 61
    check_binaries(author)
    (content / "large.bin").write_bytes(b"changed")
    assert author.imported(content, "/content/site")["files"] == 1


def test_a_content_package_goes_in_and_out_over_http_through_lost_answers(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    url, app = service
    xml = (
        '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="Page" scan="{Binary}" '
        'at="{Date}2026-11-26T10:00:00.000Z"><b jcr:primaryType="Part"/><a/></jcr:root>'
    )
    texts = {"site/.content.xml": xml, "site/scan.binary": "bytes", "site/a/x.txt": "text"}
    given = package(tmp_path / "in.zip", texts, "/site")
    author.environment.pop("PACKHORSE_DATABASE_URL")
    author.environment |= {"PACKHORSE_SERVER": url, "PACKHORSE_TOKEN": "admin"}
    app.faults = True
    assert author.imported(given, "/")["nodes"] == 3
    assert author.imported(given, "/")["unchanged"] == 3
    author.run("export", "/site", tmp_path / "out.zip", "--as-package")
    assert described(tmp_path / "out.zip") == described(given)
    assert files(tmp_path / "out.zip") == files(given)


def test_a_package_has_every_digit_of_a_number(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    exact = {"frac": "12345678901234567.891", "huge": "7" * 310 + ".5", "int": "9" * 30}
    mixed = {"mixed": "[1.5, 12345678901234567.891]"}
    plain = {"half": "0.50", "long": "9223372036854775807", "list": "[1.5, 2.25]"}
    given = {**exact, **mixed, **plain}
    written = ", ".join(f'"{name}": {number}' for name, number in given.items())
    with author.connection() as conn:
        tree.upsert(conn, [Node("/a", "my:Type", f"{{{written}}}")])
    for where in (("--server", service[0], "--token", "admin"), ()):
        out, at = tmp_path / f"out{len(where)}.zip", f"/copy{len(where)}"
        author.run("export", "/a", out, "--as-package", *where)
        [described_as] = described(out).values()
        assert {name: described_as[name] for name in exact} == {
            name: f"{{Decimal}}{number}" for name, number in exact.items()
        }
        assert described_as["mixed"] == "{Decimal}[1.5,12345678901234567.891]"
        author.run("import", out, "--at", at, *where)
        found = json.loads(author.nodes()[f"{at}/a"].properties)
        assert {name: found[name] for name in exact} == exact
        assert {f"{name}@TypeHint" for name in exact} < set(found)
        assert [found[name] for name in plain] == [0.5, 2**63 - 1, [1.5, 2.25]]
        again = author.run("import", out, "--at", at, "--json", *where)
        assert json.loads(again.stdout)["nodes"] == 0


def test_over_http_is_the_same_as_on_the_database(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    remote = ("--server", service[0], "--token", "admin")
    (tmp_path / "in" / "page").mkdir(parents=True)
    (tmp_path / "in" / "page" / "a.txt").write_text("new")
    extra = Binary("thumbnail", "0" * 64, 1, "image/png")
    with author.connection() as conn:
        kept = Node("/page/a.txt", "file", '{"alt": "Kept"}', (extra,))
        tree.upsert(conn, [Node("/page", "page", '{"title": "Kept"}'), kept])
    author.run("import", tmp_path / "in", "--at", "/", *remote)
    nodes = author.nodes()
    assert nodes["/page"] == Node("/page", "page", '{"title": "Kept"}')
    assert nodes["/page/a.txt"].properties == '{"alt": "Kept"}'
    assert [binary.name for binary in nodes["/page/a.txt"].binaries] == ["data", "thumbnail"]
    for where in (remote, ()):
        out = tmp_path / ("out" + where[0] if where else "out")
        done = author.run("export", "/", out, "--json", *where, code=1)
        assert json.loads(done.stdout)["skipped"] == 2
        assert (
            "left out: '/page': its type 'page' and its properties, which a folder can't hold"
            in done.stderr
        )
        both = "its properties and its binary 'thumbnail', which a file can't hold"
        assert f"left out: '/page/a.txt': {both}" in done.stderr
        assert files_below(out) == {"page/a.txt": b"new"}


def test_what_is_refused_has_the_code_that_says_so(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    url, _ = service
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x")

    def refused(*arguments: object, code: int) -> str:
        return author.run(*arguments, "--server", url, code=code).stderr

    author.environment["PACKHORSE_TOKEN"] = "admin"
    assert "nothing at '/none'" in refused("export", "/none", tmp_path / "out", code=3)
    assert not (tmp_path / "out").exists()
    assert "not empty" in refused("export", "/", tmp_path / "in", code=4)
    assert "absolute" in refused("import", tmp_path / "in", "--at", "a", code=2)
    author.environment["PACKHORSE_TOKEN"] = "site"
    done = refused("import", tmp_path / "in", "--at", "/elsewhere", code=1)
    assert "refused: 'a': it lies below none of your token" in done
    for token in ("reader", "unknown"):
        author.environment["PACKHORSE_TOKEN"] = token
        assert "--token" in refused("import", tmp_path / "in", "--at", "/content/site", code=1)
    wrong = author.run("export", "/", tmp_path / "out", "--server", "nonsense", code=2)
    assert "http://host:port" in wrong.stderr
    assert not author.nodes()


def test_many_files_take_few_requests(
    author: Author, service: tuple[str, Faulty], tmp_path: Path
) -> None:
    url, app = service
    content = tmp_path / "in"
    for number in range(1_200):
        path = content / str(number // 100) / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {number}")
    author.environment |= {"PACKHORSE_SERVER": url, "PACKHORSE_TOKEN": "admin"}
    assert author.imported(content, "/a")["files"] == 1_200
    author.run("export", "/a", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(content)
    assert app.requests < 20
    app.requests = 0
    assert author.imported(content, "/" + "x" * 1_500)["files"] == 1_200, "of 1.8 MB of paths"
    assert app.requests < 30


def test_pages_of_a_subtree_and_archives_are_bounded(serve: Serve) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for path in ("/a", "/a/b", "/a/b/c", "/a-b", "/a/d"):
            body = {"type": "page", "properties": {"n": path}}
            assert (await client.put(f"/content{path}", json=body)).is_success
        seen, url = [], "/subtrees/a?limit=2"
        while url:
            page = (await client.get(url)).json()
            assert len(page["nodes"]) <= 2
            seen += [one["path"] for one in page["nodes"]]
            url = page["next"]
        assert seen == ["/a", "/a/b", "/a/b/c", "/a/d"]
        assert len((await client.get("/subtrees/")).json()["nodes"]) == 5
        for number in range(12):
            body = {"type": "page", "properties": {"n": "x" * 900_000}}
            assert (await client.put(f"/content/large/{number:02}", json=body)).is_success
        seen, url = [], "/subtrees/large?limit=1000"
        while url:
            page = (await client.get(url)).json()
            assert len(page["nodes"]) <= 5
            seen += [one["path"] for one in page["nodes"]]
            url = page["next"]
        assert seen == ["/large", *(f"/large/{number:02}" for number in range(12))]
        for url, status in (
            ("/subtrees/none", 404),
            ("/subtrees/a?after=/b", 422),
            ("/subtrees/a?limit=1001", 422),
        ):
            assert (await client.get(url)).status_code == status
        outside = await client.get("/subtrees/a", headers=as_("site"))
        assert outside.status_code == 403
        tar = {"Content-Type": "application/x-tar"}
        for body, status in ((b"no archive", 422), (packed({"0" * 64: b"x"}), 422)):
            answer = await client.post("/blobs", content=body, headers=tar)
            assert answer.status_code == status, answer.text
        good = packed({digest_of(b"x").removeprefix("sha256:"): b"x"})
        assert (await client.post("/blobs", content=good)).status_code == 415
        assert (await client.post("/blobs", content=good, headers=tar)).status_code == 200
        too_long = await client.post("/blobs", content=bytes(2**24 + 1), headers=tar)
        assert too_long.status_code == 413
        wanted = {"digests": [digest_of(b"x"), digest_of(b"x")]}
        archive = await client.post("/blob-archives", json=wanted)
        assert list(unpacked(archive.content).values()) == [b"x"]
        none = await client.post("/blob-archives", json={"digests": [digest_of(b"y")]})
        assert none.status_code == 404

    serve(scenario)
