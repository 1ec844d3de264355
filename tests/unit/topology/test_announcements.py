"""Announcements as bytes: what goes out comes in, what is too much is left out or refused."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.topology.announcements import (
    MAX_BYTES,
    Announcement,
    InvalidAnnouncement,
    Route,
    decode,
    decode_content,
    encode,
)
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.sealing import place_of, seal, unseal
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse_services.topology.connectors.coding import (
    MAX_WIRE_BYTES,
    Seal,
    TooLarge,
    coded,
    uncoded,
)
from tests.harness.topology.clusters import cluster

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=50)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
PROPERTIES = st.dictionaries(NAMES, TEXTS, max_size=4)
KEY = Seal(b"k" * 32, place_of("PUT", "a.example", "/", "1:a"))


@st.composite
def announcements(draw: st.DrawFn) -> Announcement:
    names = draw(st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), unique=True, min_size=1))
    views = [_cluster(draw, name) for name in names]
    routes = tuple(Route((names[0], view.id), view) for view in views[1:])
    backoff = draw(st.floats(0, 600))
    return Announcement(views[0].ids[0], views[0], routes, 1, "x", draw(st.booleans()), backoff)


def _cluster(draw: st.DrawFn, name: str) -> ClusterView:
    count = draw(st.integers(1, 3))
    return ClusterView(
        name,
        tuple(
            InstanceDescription(f"{name}-{n}", name, is_leader=n == 0, properties=draw(PROPERTIES))
            for n in range(count)
        ),
    )


@given(announcements(), st.booleans(), st.sampled_from([None, KEY]))
def test_what_goes_out_comes_in(reported: Announcement, packed: bool, sealing: Seal | None) -> None:
    found = coded(reported, gzip=packed, sealing=sealing)
    heard = decode(uncoded(found.headers, found.body, sealing))
    assert (
        heard.content()
        == Announcement(reported.owner, reported.local_cluster, _sorted(reported)).content()
    )
    assert (heard.owner, heard.loop, heard.backoff_interval_s) == (
        reported.owner,
        reported.loop,
        reported.backoff_interval_s,
    )
    assert decode_content(heard.content(), heard.owner).content() == heard.content()


def _sorted(reported: Announcement) -> tuple[Route, ...]:
    return tuple(sorted(reported.further, key=lambda route: route.path))


def test_what_does_not_fit_is_left_out_the_farthest_first() -> None:
    large = "x" * 4_000
    near = Route(("a", "b"), cluster("b"))
    far = [
        Route(("a", "b", f"c{n}"), cluster(f"c{n}", **{f"p{m}": large for m in range(15)}))
        for n in range(30)
    ]
    reported = Announcement("a-1", cluster("a"), (*far, near))
    body = encode(reported)
    kept = [route.cluster.id for route in decode(body).further]
    assert kept[0] == "b"
    assert 10 < len(kept) < 30
    assert len(body) <= MAX_BYTES
    assert len(coded(reported, gzip=False, sealing=None).body) <= MAX_WIRE_BYTES


def test_what_would_be_refused_for_its_tokens_is_left_out_too() -> None:
    """Or one cluster whose properties are full of commas would part all those behind it."""
    commas = {f"p{number}": "," * 4_000 for number in range(15)}
    further = [Route(("a", "b"), cluster("b"))]
    further += [Route(("a", f"c{number}"), cluster(f"c{number}", **commas)) for number in range(3)]
    heard = decode(encode(Announcement("a-1", cluster("a"), tuple(further))))
    assert [route.cluster.id for route in heard.further] == ["b", "c0"]


def test_an_own_cluster_that_does_not_fit_is_said_to_be_too_large() -> None:
    properties = {f"p{number}": "x" * 4_000 for number in range(15)}
    own = ClusterView(
        "a",
        tuple(
            InstanceDescription(f"a-{n}", "a", is_leader=n == 0, properties=properties)
            for n in range(20)
        ),
    )
    with pytest.raises(TooLarge):
        coded(Announcement("a-0", own), gzip=False, sealing=None)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_a_reason(body: bytes) -> None:
    with pytest.raises(InvalidAnnouncement) as refusal:
        decode(body)
    assert str(refusal.value)


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_changed_sealed_byte_is_noticed(at: int, change: int) -> None:
    sealed = bytearray(seal(KEY.key, b"x" * 40, KEY.place))
    sealed[at] ^= change
    with pytest.raises(Rejected):
        unseal(KEY.key, bytes(sealed), KEY.place)


def test_a_sealed_body_belongs_to_one_place_and_key() -> None:
    sealed = seal(KEY.key, b"secret", KEY.place)
    assert unseal(KEY.key, sealed, KEY.place) == b"secret"
    assert b"secret" not in sealed
    assert sealed != seal(KEY.key, b"secret", KEY.place)
    for key, place in (
        (b"l" * 32, KEY.place),
        (KEY.key, place_of("PUT", "a.example", "/", "2:a")),
        (KEY.key, place_of("PUT", "a.example", "", "/1:a")),
        (KEY.key, place_of("PUT", "b.example", "/", "1:a")),
    ):
        with pytest.raises(Rejected):
            unseal(key, sealed, place)
    with pytest.raises(Rejected):
        unseal(KEY.key, b"", KEY.place)


def test_only_bounded_gzip_is_unpacked() -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    with pytest.raises(TooLarge):
        uncoded(headers, gzip.compress(b" " * 10_000_000), None)
    with pytest.raises(Rejected) as refusal:
        uncoded(headers, gzip.compress(b"{}") + b"x", None)
    assert refusal.value.reason is RejectionReason.ANNOUNCEMENT
