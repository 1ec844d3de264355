"""Looking up which clear of a part covers a path, against asking each of them."""

from bisect import bisect_right

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from packhorse.content.node import Binary, is_within
from packhorse_services.pipeline.history.decoding import binaries_text
from packhorse_services.pipeline.history.fold import NOWHERE, PackageParts
from packhorse_services.pipeline.history.onto_base import touching

NAMES = st.sampled_from(["a", "b", "a-b", "é", "😀", "0"])
BELOW = st.lists(NAMES, max_size=3).map(lambda names: "".join(f"/{name}" for name in names))
TOPS = st.sampled_from(["", "/t", "/t/a"])


@st.composite
def clears(draw: st.DrawFn) -> tuple[str, str, str, int]:
    top = draw(TOPS)
    first, end = sorted((draw(BELOW), draw(BELOW)))
    bounds = (top + first if first else "", top + end if end else "")
    return top or "/", *bounds, draw(st.integers(0, 30))


def covers(clear: tuple[str, str, str, int], path: str) -> bool:
    top, first, end, _ = clear
    key = path.encode()
    return is_within(path, top) and first.encode() <= key and (not end or key < end.encode())


@given(st.lists(clears(), max_size=12), st.lists(st.tuples(TOPS, BELOW), min_size=1, max_size=8))
@example([("/t", "", "/t/b", 3), ("/t", "/t/a", "", 1)], [("/t", "/a"), ("/t", "/b"), ("", "/t")])
def test_the_last_covering_part_is_found(
    given_clears: list[tuple[str, str, str, int]], paths: list[tuple[str, str]]
) -> None:
    parts = PackageParts(given_clears)
    edges = parts.edges()
    for top, below in paths:
        path = top + below or "/"
        expected = max((one[3] for one in given_clears if covers(one, path)), default=NOWHERE)
        assert parts.last_clear(path) == expected
        assert (bisect_right(edges, path) % 2 == 1) == (expected > NOWHERE)


PATHS = st.lists(st.tuples(TOPS, BELOW).map(lambda pair: "".join(pair) or "/"), unique=True)


@given(PATHS, PATHS, PATHS)
def test_what_is_written_or_cleared_is_touched(
    some: list[str], written: list[str], bounds: list[str]
) -> None:
    paths, edges = sorted(some), sorted(bounds)
    touches = touching(pa.array(written, pa.string()), edges)
    assert touches(pa.array(paths, pa.string())).to_pylist() == [
        path in written or bisect_right(edges, path) % 2 == 1 for path in paths
    ]


def test_binaries_are_ordered_as_jsonb_is() -> None:
    text = binaries_text(tuple(Binary(name, "ab" * 32, 1, "x/y") for name in ("bb", "c", "é")))
    assert text.startswith('{"c": {"digest": "sha256:abab')
    assert text.index('"bb"') < text.index('"é"')
    assert binaries_text(()) == "{}"
