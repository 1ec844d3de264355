"""Where the next page of a list is."""

from packhorse.runtime.paging import link_to, page_url


def test_a_page_is_asked_with_what_was_given_in_its_order() -> None:
    requested = {"state": None, "template": ['{"a": 1}', "b&c"], "path": "/x y"}
    assert page_url("/jobs", limit=0, **requested, cursor="e1") == (
        "/jobs?limit=0&template=%7B%22a%22%3A+1%7D&template=b%26c&path=%2Fx+y&cursor=e1"
    )


def test_only_a_page_that_there_is_has_a_link() -> None:
    assert link_to("/jobs?cursor=e1") == {"Link": '</jobs?cursor=e1>; rel="next"'}
    assert link_to(None) == {}
