"""Where the next page of a list is."""

import pytest

from packhorse.runtime.paging import link_to, page_url, read_cursor, write_cursor


def test_a_page_is_asked_with_what_was_given_in_its_order() -> None:
    requested = {"state": None, "template": ['{"a": 1}', "b&c"], "path": "/x y"}
    assert page_url("/jobs", limit=0, **requested, cursor="e1") == (
        "/jobs?limit=0&template=%7B%22a%22%3A+1%7D&template=b%26c&path=%2Fx+y&cursor=e1"
    )


def test_only_a_page_that_there_is_has_a_link() -> None:
    assert link_to("/jobs?cursor=e1") == {"Link": '</jobs?cursor=e1>; rel="next"'}
    assert link_to(None) == {}


@pytest.mark.parametrize("place", ["o7", "e1.2", '["hour","ä"]', "?>~"])
def test_a_cursor_names_its_place_and_fits_into_a_url(place: str) -> None:
    cursor = write_cursor(place)
    assert read_cursor(cursor) == place
    assert page_url("/jobs", cursor=cursor) == f"/jobs?cursor={cursor}"


@pytest.mark.parametrize("text", ["", "a", "*", "bz c", "bzc\n", "_w"])
def test_what_is_no_cursor_names_no_place(text: str) -> None:
    assert read_cursor(text) == ""
