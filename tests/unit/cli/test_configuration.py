"""What `packhorse config check` says of files that can't be read."""

from pathlib import Path

import pytest

from packhorse_services.cli.configuration import warnings


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    [reported] = warnings({"PACKHORSE_DATABASE_URL_FILE": str(file)})
    assert reported.startswith("PACKHORSE_DATABASE_URL_FILE: the file can't be read: ")
    assert "\n" not in reported
