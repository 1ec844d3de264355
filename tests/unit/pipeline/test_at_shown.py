"""What `at --json` prints of a node."""

import re
from typing import Any, NamedTuple

import pytest

from packhorse_services.pipeline.at.command import show

PROPERTIES = '{"exact": 12345678901234567.891, "long": 1' + "0" * 308 + ', "large": 1e400}'


class Found(NamedTuple):
    """A row of a subtree, with its text as the author's database wrote it."""

    properties: str
    path: str = "/a"
    type: str = "page"
    binaries: str = "{}"
    offset: int = 3
    package_id: str = "p"


class Subtree:
    """A subtree of one node, lent as a data frame lends it."""

    base = None

    def __init__(self, row: Found) -> None:
        self.nodes, self._row = self, row

    def toLocalIterator(self, *, prefetchPartitions: bool) -> Any:  # noqa: N802, N803
        return iter([self._row])


@pytest.mark.parametrize("end", [" ", "\n", "\r\n"])
def test_numbers_are_as_they_were_and_a_node_is_a_line(
    capsys: pytest.CaptureFixture[str], end: str
) -> None:
    show(Subtree(Found(PROPERTIES.replace(", ", f",{end}"))), "/a", as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert PROPERTIES in re.sub(", +", ", ", line)
