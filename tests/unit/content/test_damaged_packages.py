"""Archives and filters that are damaged or made to be: refused with a reason, one by one."""

import io
import zipfile
from pathlib import Path

import pytest

from packhorse_services.content.filevault.workspace_filter import read_filter
from packhorse_services.content.transfer.sources import (
    UNREADABLE,
    NotImportable,
    examined,
    open_source,
)

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
DAMAGED_NAME = b"b\xff\xa4d"


def archive(method: int) -> bytearray:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", method) as made:
        made.writestr("bäd", bytes(range(256)) * 40)
        made.writestr("good", b"good")
    return bytearray(body.getvalue())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("where", ["bytes", "name"])
def test_a_damaged_file_keeps_no_other_from_being_read(
    tmp_path: Path, method: int, where: str
) -> None:
    body = archive(method)
    if where == "bytes":
        body[50:100] = b"\xff" * 50
    else:
        body[30:34] = DAMAGED_NAME
    (tmp_path / "a.zip").write_bytes(body)
    bad, good = open_source(tmp_path / "a.zip").entries()
    with pytest.raises(UNREADABLE):
        examined(bad)
    assert examined(good)[0] == b"good"


def test_an_archive_whose_list_of_names_is_damaged(tmp_path: Path) -> None:
    body = archive(zipfile.ZIP_STORED)
    at = body.rindex("bäd".encode())
    body[at : at + 4] = DAMAGED_NAME
    (tmp_path / "a.zip").write_bytes(body)
    with pytest.raises(NotImportable, match="neither"):
        open_source(tmp_path / "a.zip")


@pytest.mark.parametrize(
    "pattern", ["(", "a{99999999999}", "(" * 499 + ")" * 499, "(?a)(?u)x"], ids=range(4)
)
def test_a_pattern_that_is_none(pattern: str) -> None:
    text = f'<w><filter root="/"/><include pattern="{pattern}"/></w>'
    with pytest.raises(NotImportable, match="is no pattern"):
        read_filter(io.BytesIO(text.encode()))
