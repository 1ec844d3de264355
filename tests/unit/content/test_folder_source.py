"""A folder of the file system as what is imported."""

from pathlib import Path

from packhorse_services.content.transfer.sources import open_source


def test_a_file_that_vanishes_hides_no_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    entries = open_source(tmp_path).entries()
    listed = next(entries)  # and with it all of the folder
    vanished, other = sorted({"a", "b", "c"} - {listed.name})
    (tmp_path / vanished).unlink()
    problems = {one.name: one.problem for one in entries}
    assert problems == {vanished: "can't be read: No such file or directory", other: ""}
