"""A file that is written whole or not at all is written nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from packhorse.runtime.whole_file import whole_file


@pytest.mark.parametrize("make_link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_that_waits_for_it_is_not_followed(tmp_path: Path, make_link: Any) -> None:
    victim, target = tmp_path / "victim", tmp_path / "report.html"
    victim.write_bytes(b"of somebody")
    make_link(tmp_path / ".report.html.new", victim)
    with whole_file(target) as file:
        file.write(b"report")
    assert (target.read_bytes(), victim.read_bytes()) == (b"report", b"of somebody")
