"""Lists of entity tags: read in one pass, whatever they hold."""

import pytest

from packhorse.runtime.entity_tags import EntityTags
from packhorse.runtime.problems import Problem


@pytest.mark.parametrize(
    ("header", "weak", "digests"),
    [
        ('"a"', False, ["a"]),
        ('"a", W/"b" ,"c"', True, ["a", "b", "c"]),
        ('"a", W/"b" ,"c"', False, ["a", "c"]),
        ('"a", W/"a"', False, ["a"]),
        (' , "a",, ', False, ["a"]),
        ("", True, []),
    ],
)
def test_a_list_is_read(header: str, weak: bool, digests: list[str]) -> None:
    tags = EntityTags.parse(header, weak=weak)
    assert (tags.digests, tags.anything) == (digests, False)


def test_the_star_stands_for_any() -> None:
    assert "whatever" in EntityTags.parse(" * ", weak=False)


@pytest.mark.parametrize("header", ["a", '"', '"a', 'a"', '"a" "b"', "W/", 'w/"a"', "*, *"])
def test_what_is_no_list_is_400(header: str) -> None:
    with pytest.raises(Problem, match="400"):
        EntityTags.parse(header, weak=True)


@pytest.mark.parametrize("filler", [" ", '"', ",", 'W/"'])
def test_a_header_of_blanks_costs_no_minutes(filler: str) -> None:
    """A pattern that begins anew at each blank took 171 s for this."""
    with pytest.raises(Problem, match="400"):
        EntityTags.parse("x" + 60_000 * filler + "x", weak=True)
