"""What a caller names stays what it is on its way to the service."""

from collections.abc import Callable

import pytest

from packhorse.client.calls import commanding, distributing
from packhorse.client.errors import Misused
from packhorse.client.exchange import Document, Operation, quoted, segment, with_query


@pytest.mark.parametrize("path", ["", "a", "/a/..", "/../readyz", "/a/./b", "/a//b", "/a/"])
def test_a_path_that_would_name_another_node_is_refused(path: str) -> None:
    with pytest.raises(Misused):
        quoted(path)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_name_another_resource_is_refused(name: str) -> None:
    with pytest.raises(Misused, match="is no name"):
        segment(name)


def test_a_document_in_the_place_of_its_id_is_refused() -> None:
    with pytest.raises(Misused, match="a name or id is a text, no Document"):
        segment(Document(id="d-1"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: distributing.distribute("/a", wait=True),
        lambda: distributing.wait_for("d-1", True),
        lambda: commanding.pause("sub1", wait=True),
        lambda: commanding.clear("sub1", wait=True),
    ],
)
def test_a_wait_that_is_no_seconds_is_refused_before_anything_is_sent(
    call: Callable[[], Operation[Document]],
) -> None:
    with pytest.raises(Misused, match="wait= is seconds, such as 60"):
        call().send(None)


def test_what_is_no_unicode_is_refused() -> None:
    for refused in (lambda: segment("\udcff"), lambda: with_query("/queues", user="\udcff")):
        with pytest.raises(Misused, match="no Unicode"):
            refused()


def test_all_others_are_sent_as_they_are() -> None:
    assert quoted("/") == "/"
    assert quoted("/a b/ü?#") == "/a%20b/%C3%BC%3F%23"
    assert segment("a/../b") == "a%2F..%2Fb"
