"""Binaries that memory can't hold, in both of the library's clients, through lost answers."""

import asyncio
import hashlib
import io
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packhorse import AsyncClient, Client
from packhorse.client.errors import Misused, NotFound, Unreadable
from tests.contract.client.played_blobs import Blobs, pattern, played_blobs
from tests.harness.client_runners import LANGUAGES, Runner
from tests.harness.played_service import Service, fine, problem

LARGE = 32 * 1024**2
MEMORY = LARGE * 5 // 8
SMALLER = LARGE // 4
"""What the other languages' programs hold in memory is not measured."""
Ask = Callable[..., Any]


@pytest.fixture
def blobs() -> Iterator[Blobs]:
    with played_blobs(LARGE) as played:
        yield played


@pytest.fixture
def smaller() -> Iterator[Blobs]:
    with played_blobs(SMALLER) as played:
        yield played


@pytest.fixture
def ask(kind: str) -> Ask:
    """Makes a call of either client; of parts it returns digest and length."""

    async def awaited(call: str, url: str, *args: Any) -> Any:
        async with AsyncClient(url, content=url) as client:
            made = getattr(client, call)(*args)
            if not isinstance(made, AsyncIterator):
                return await made
            found, length = hashlib.sha256(), 0
            async for part in made:
                found.update(part)
                length += len(part)
            return f"sha256:{found.hexdigest()}", length

    def blocked(call: str, url: str, *args: Any) -> Any:
        with Client(url, content=url) as client:
            made = getattr(client, call)(*args)
            if not isinstance(made, Iterator):
                return made
            found, length = hashlib.sha256(), 0
            for part in made:
                found.update(part)
                length += len(part)
            return f"sha256:{found.hexdigest()}", length

    return blocked if kind == "blocking" else lambda *given: asyncio.run(awaited(*given))


@pytest.fixture
def bounded() -> Iterator[None]:
    """Client and service together never hold two thirds of the binary."""
    tracemalloc.start(1)
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MEMORY


def test_a_large_file_is_sent_and_sent_again(
    ask: Ask, blobs: Blobs, tmp_path: Path, bounded: None
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(b"before")
        file.writelines(pattern(0, LARGE))
    with path.open("rb") as file:
        file.seek(len(b"before"))
        stored = ask("put_binary", blobs.url, file, "video/mp4")
    assert stored == {"digest": blobs.digest, "length": LARGE, "media_type": "video/mp4"}
    assert ask("put_binary", blobs.url, pattern(0, LARGE))["digest"] == blobs.digest
    assert blobs.taken == [blobs.digest] * 4, "two answers were lost"


def test_a_large_binary_is_read_in_parts_that_are_asked_for_again(
    ask: Ask, blobs: Blobs, bounded: None
) -> None:
    assert ask("read_binary", blobs.url, "/a b") == (blobs.digest, LARGE)
    assert ask("read_blob", blobs.url, blobs.digest) == (blobs.digest, LARGE)
    by_digest = f"/blobs/{blobs.digest.replace(':', '%3A')}"
    assert set(blobs.requests) == {"/binaries/a%20b?name=data", by_digest}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_other_languages_send_and_read_a_large_file(
    language: str, runner_of: Callable[[str], Runner], smaller: Blobs, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.writelines(pattern(0, SMALLER))
    given = {"path": str(path), "name": smaller.digest, "token": "secret", "patience": 60.0}
    told = runner_of(language).call("blob", url=smaller.url, **given)
    assert f"sha256:{told.result}" == smaller.digest, told
    assert set(smaller.taken) == {smaller.digest}
    assert len(smaller.requests) == 4, "an answer to each was lost"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("replaced", "patience"), [(True, 60.0), (False, 0.0)])
def test_a_binary_that_breaks_off_is_an_error_where_it_can_not_go_on(
    language: str,
    replaced: bool,
    patience: float,
    runner_of: Callable[[str], Runner],
    smaller: Blobs,
) -> None:
    smaller.replaced = replaced
    asked = {"name": smaller.digest, "token": "secret", "patience": patience}
    told = runner_of(language).call("download", url=smaller.url, **asked)
    assert (told.result, told.status) == (None, 0), "the bytes of two binaries, or of a half"
    assert len(smaller.requests) == 1 + replaced


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_binary_goes_on_where_it_broke_off_whatever_its_type_is(
    kind: str, language: str, runner_of: Callable[[str], Runner], service: Service
) -> None:
    shown = {"Content-Type": kind, "ETag": '"d"', "Accept-Ranges": "bytes"}
    rest = {**shown, "Content-Range": "bytes 2-4/5"}
    service.answers = [(200, {**shown, "Content-Length": "5"}, '"1'), (206, rest, '23"')]
    asked = {"name": "d", "token": "secret", "patience": 60.0}
    told = runner_of(language).call("download", url=service.url, **asked)
    assert told.result == hashlib.sha256(b'"123"').hexdigest(), told
    assert service.headers("Range") == [None, "bytes=2-"]


def test_what_broke_off_leaves_no_file(
    runner_of: Callable[[str], Runner], service: Service
) -> None:
    service.answers = [(200, {"Content-Type": "image/png", "Content-Length": "5"}, "12")]
    java = runner_of("java")
    before = set(java.temporary.iterdir())
    told = java.call("download", url=service.url, name="d", token="secret", patience=0.0)
    assert told.result is None
    assert set(java.temporary.iterdir()) == before


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_a_binary_in_the_other_languages_too(
    language: str, runner_of: Callable[[str], Runner], service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "empty"
    path.touch()
    shown = {"Content-Type": "image/png", "ETag": '"d"', "Accept-Ranges": "bytes"}
    service.answers = [fine(201, digest="d", length=0), (200, shown, "")]
    asked = {"path": str(path), "name": "d", "token": "secret", "patience": 0.0}
    told = runner_of(language).call("blob", url=service.url, **asked)
    assert told.result == hashlib.sha256().hexdigest(), told


def test_nothing_is_a_binary_too(ask: Ask) -> None:
    with played_blobs(0) as empty:
        assert ask("binary", empty.url, "/a") == b""
        assert ask("read_blob", empty.url, empty.digest) == (empty.digest, 0)
        assert ask("put_binary", empty.url, b"")["digest"] == empty.digest


def test_other_bytes_than_those_of_the_digest_are_no_binary(ask: Ask) -> None:
    with played_blobs(1000) as played:
        played.damaged = True
        with pytest.raises(Unreadable, match="other bytes than"):
            ask("binary", played.url, "/a")
        with pytest.raises(Unreadable, match="of other bytes, than was asked"):
            ask("read_blob", played.url, f"sha256:{'0' * 64}")


def test_what_is_refused_for_good_is_not_sent_again(
    ask: Ask, service: Service, tmp_path: Path, blobs: Blobs
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 1000)

    class Growing(io.FileIO):
        """Ends later when it is read a second time."""

        def seek(self, place: int, whence: int = 0) -> int:
            with path.open("ab") as more:
                more.write(b"y")
            return super().seek(place, whence)

    with pytest.raises(Misused, match="has changed since it was read"), Growing(path) as growing:
        ask("put_binary", blobs.url, growing)
    with pytest.raises(Misused, match="comes as bytes"), path.open() as text:
        ask("put_binary", blobs.url, text)
    service.answers = [problem(408, "too-slow"), fine(201)]
    assert ask("put_binary", service.url, b"[1]").length == 3
    assert [body for _, _, _, body in service.requested] == [[1], [1]]
    service.answers = [problem(404, "not-found", detail="there is no node")]
    with pytest.raises(NotFound, match="there is no node"):
        ask("read_binary", service.url, "/a")
