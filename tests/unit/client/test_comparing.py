"""A comparison page by page against services that change while it reads (R8, R35)."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.client.calls import comparing
from packhorse.client.calls.comparing import compare, mend
from packhorse.client.errors import Conflict, Denied, NotFound, Refused
from packhorse.client.exchange import Answer, Document, Operation, Pause, Request
from packhorse.packages.path_filter import EVERYTHING, PathFilter

PATHS = st.sampled_from([f"/{a}{b}{c}" for a in "ab" for b in ("", "/x", "-") for c in ("", "/é")])
CONTENT = st.dictionaries(PATHS, st.sampled_from("12"))


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "_PAGE", 2)
        yield


@dataclass
class World:
    """An author, a subscriber, and its queue; `meanwhile` happens before the nth request."""

    author: dict[str, str]
    there: dict[str, str]
    queue: list[dict[str, Any]] = field(default_factory=list)
    meanwhile: dict[int, Callable[[], object]] = field(default_factory=dict)
    sent: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    asked: set[tuple[str, str]] = field(default_factory=set)
    """Which services, and whose."""
    refused: dict[str, type[Refused]] = field(default_factory=dict)
    """For which paths a distribution is refused."""
    path_filter: PathFilter = EVERYTHING
    others_filter: PathFilter = EVERYTHING
    """That of the subscriber `other`."""

    def run(self, operation: Operation[Any]) -> Any:
        """Answer an operation's requests until it ends."""
        step: Callable[[], Any] = partial(operation.send, None)
        for number in count():
            try:
                effect = step()
            except StopIteration as end:
                return end.value
            self.meanwhile.get(number, lambda: None)()
            try:
                answer = 1e9 if isinstance(effect, Pause) else self._answer(effect)
                step = partial(operation.send, answer)
            except Refused as error:
                step = partial(operation.throw, error)
        return None

    def _answer(self, request: Any) -> Answer:
        assert isinstance(request, Request)
        self.asked.add((request.service, request.subscriber))
        content = {"content": self.author, "subscriber": self.there}.get(request.service)
        document = self._published(request) if content is None else _page(request.path, content)
        return _Answered(request.path, 200, {}, b"", document)

    def _published(self, request: Request) -> Any:
        if request.method == "POST":
            for number, path in enumerate(request.body["paths"]):
                if path in self.refused:
                    wrong = {"errors": [{"pointer": f"#/paths/{number}", "detail": "changed"}]}
                    raise self.refused[path](path, 409, wrong)
            self.sent.append(request.body)
            self.keys.append(request.headers["Idempotency-Key"])
            return {"id": f"id-{len(self.sent)}"}
        if request.path.startswith("/subscribers/"):
            own = self.others_filter if request.path.endswith("/other") else self.path_filter
            return {**asdict(own), "map_paths": dict(own.map_paths)}
        entries = [{"offset": at, **one} for at, one in enumerate(self.queue)]
        about = {"length": len(entries), "offset": -1, "state": "IDLE", "next": None}
        return {"entries": entries, **about}


@dataclass(frozen=True)
class _Answered(Answer):
    found: Any = None

    def document(self) -> Any:
        return Document(self.found)


def _page(url: str, content: dict[str, str]) -> Any:
    parts = urlsplit(url)
    top = unquote(parts.path.removeprefix("/digests"))
    wanted = {name: values[0] for name, values in parse_qs(parts.query).items()}
    after, up_to = wanted.get("after", ""), wanted.get("up_to", "\U0010ffff")
    inside = [p for p in sorted(content) if top in ("/", p) or p.startswith(f"{top}/")]
    found = [path for path in inside if after < path <= up_to]
    limit = int(wanted["limit"])
    nodes = [{"path": path, "digest": content[path]} for path in found[:limit]]
    return {"nodes": nodes, "next": url if len(found) > limit else None}


FOLDER = hashlib.sha256(b"folder\n{}\n{}").hexdigest()[:32]
"""The digest of a folder that an import has made."""


def test_r35_what_the_filter_leaves_out_is_not_compared() -> None:
    author = {"/a": FOLDER, "/a/x": "1", "/a/x/y": "1", "/b": FOLDER, "/b/x": "1", "/c": "1"}
    there = {"/a/x/y": "2", "/a/x/z": "2", "/b": "2", "/c": "1"}
    world = World(author, there, path_filter=PathFilter(exclude=("/a/x", "/b/x", "/d")))
    found = world.run(compare("/", "sub"))
    assert (kinds(found), found["nodes"]) == ({"/b": "different"}, 3)
    world = World(author, there, path_filter=PathFilter(include=("/a/x/y", "/b")))
    assert kinds(world.run(compare("/", "sub"))) == {
        **dict.fromkeys(("/a/x/y", "/b"), "different"),
        "/b/x": "missing",
    }


@given(author=CONTENT, there=CONTENT, limit=st.integers(1, 20), from_other=st.booleans())
def test_r35_what_subscribers_map_is_compared_where_it_lies(
    author: dict[str, str], there: dict[str, str], limit: int, from_other: bool
) -> None:
    own = PathFilter((), ("/b-",), (("/a", "/b"), ("/b", "/a/x/é"), ("/a/x", "/b-")), ("t",))
    elsewhere = {own.own(path): digest for path, digest in there.items() if own.holds(path)}
    # What else is there is compared with nothing: the author's own /b- would come there.
    world = World(author, {**elsewhere, "/a/x": "1", "/a-": "1"}, path_filter=own)
    others = EVERYTHING
    if from_other:
        others = PathFilter((), ("/a-é", "/c"), (("/a/x", "/c/d"), ("/b", "/b/x")), ("u",))
        world.author = {others.own(one): said for one, said in author.items() if others.holds(one)}
        world.author["/a/x/y"] = "1"  # no node of the author comes there
        world.others_filter = others
    rows: list[Document] = []
    place: str | None = None
    while True:
        page = world.run(
            compare("/", "sub", other="other" if from_other else None, after=place, limit=limit)
        )
        rows, place = rows + page["differences"], page["next"]
        if place is None:
            break

    def both_take(path: str) -> bool:
        return own.holds(path) and others.holds(path)

    taken = {path: one for path, one in author.items() if both_take(path)}
    held = {path: one for path, one in there.items() if both_take(path)} | {"/a-": "1"}
    expected = {
        path: "missing" if path not in held else "different" if path in taken else "extra"
        for path in taken.keys() | held.keys()
        if taken.get(path) != held.get(path)
    }
    assert {one["path"]: one["kind"] for one in rows} == expected
    assert all(one.get("own_path", one["path"]) == own.own(one["path"]) for one in rows)


def package(action: str, *paths: str, deep: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"action": action, "paths": list(paths), "deep_paths": list(deep)}


def kinds(found: Document) -> dict[str, str]:
    return {one["path"]: one["kind"] for one in found["differences"]}


@given(author=CONTENT, there=CONTENT, limit=st.integers(1, 20))
def test_all_that_differs_is_found_in_order_and_mended(
    author: dict[str, str], there: dict[str, str], limit: int
) -> None:
    world = World(author, there)
    rows: list[Document] = []
    place, nodes = None, 0
    while True:
        page = world.run(compare("/", "sub", after=place, limit=limit))
        assert page["under_way"] == 0
        assert len(page["differences"]) <= limit
        rows += page["differences"]
        place, nodes = page["next"], nodes + page["nodes"]
        if place is None:
            break
    expected = {
        path: "missing" if path not in there else "different" if path in author else "extra"
        for path in sorted(author.keys() | there.keys())
        if author.get(path) != there.get(path)
    }
    assert [(one["path"], one["kind"]) for one in rows] == list(expected.items())
    assert nodes == len(author)

    world.run(mend("sub", rows, key="k"))
    assert all(body["targets"] == ["sub"] for body in world.sent)
    added = [p for body in world.sent if body["action"] == "ADD" for p in body["paths"]]
    deleted = [p for body in world.sent if body["action"] == "DELETE" for p in body["paths"]]
    assert added == [path for path, kind in expected.items() if kind != "extra"]
    covered = [
        path
        for path, kind in expected.items()
        if kind == "extra" and any(path == top or path.startswith(f"{top}/") for top in deleted)
    ]
    assert covered == [path for path, kind in expected.items() if kind == "extra"]
    assert set(deleted) <= set(covered)


@pytest.mark.parametrize(
    ("queued", "under_way"),
    [
        (package("ADD", "/a"), {"/a"}),
        (package("ADD", "/a/b/c"), {"/a", "/a/b", "/a/b/c"}),
        (package("ADD", deep=("/a",)), {"/a", "/a/b", "/a/b/c"}),
        (package("DELETE", "/a/b"), {"/a", "/a/b", "/a/b/c"}),
        (package("ADD", "/ab"), set()),
        ({"action": None, "paths": [], "deep_paths": []}, {"/a", "/a/b", "/a/b/c", "/d"}),
    ],
)
def test_what_a_package_under_way_is_about_does_not_count(
    queued: dict[str, Any], under_way: set[str]
) -> None:
    world = World(dict.fromkeys(["/a", "/a/b", "/a/b/c", "/d"], "1"), {}, [queued])
    found = world.run(compare("/", "sub"))
    assert set(kinds(found)) == set(world.author) - under_way
    assert (found["under_way"], found["packages"]) == (len(under_way), 1)


def test_what_changes_while_it_is_read_does_not_count() -> None:
    def edited() -> None:
        world.author["/a"] = "2"

    def imported() -> None:
        world.queue.clear()
        world.there["/a"] = "1"

    for number in range(3):
        world = World({"/a": "1"}, {"/a": "0"}, [], {4: edited})
        assert kinds(world.run(compare("/a", "sub"))) == {}, "the author changed it"
        world = World({"/a": "1"}, {"/a": "0"}, [package("ADD", "/a")], {number: imported})
        found = world.run(compare("/a", "sub"))
        assert (kinds(found), found["under_way"]) == ({}, 0), number


def test_what_the_author_has_again_or_lost_meanwhile_is_left_out_of_the_mending() -> None:
    rows = [{"path": f"/{name}", "kind": "extra"} for name in ("a", "b", "c")]
    rows += [{"path": f"/{name}", "kind": "missing"} for name in ("d", "e")]
    refused: dict[str, type[Refused]] = dict.fromkeys(("/a", "/c"), Conflict)
    world = World({}, {}, refused={**refused, "/d": NotFound, "/e": NotFound})
    found = world.run(mend("sub", rows, key="k"))
    assert found == {"ids": ["id-1"], "changed": ["/a", "/c", "/d", "/e"]}
    deletion = {"action": "DELETE", "paths": ["/b"], "targets": ["sub"], "only_if_absent": True}
    assert world.sent == [deletion]
    world.run(mend("sub", rows, key="k"))
    assert world.keys[0] == world.keys[1] != "k-0", "another request, and the same when repeated"

    world = World({}, {}, refused={"/b": Denied})
    with pytest.raises(Denied):
        world.run(mend("sub", rows))


@pytest.mark.parametrize("other", [None, "other"])
def test_each_side_is_asked_by_its_name(other: str | None) -> None:
    world = World({"/a": "1"}, {"/a": "2"})
    world.run(compare("/", "sub", other=other))
    assert world.asked == {("publisher", ""), ("subscriber", "sub"), ("content", other or "")}
