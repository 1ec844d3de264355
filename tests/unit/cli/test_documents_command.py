"""`packhorse openapi`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from packhorse_services.cli.app import run
from packhorse_services.cli.documents import ApiDocument, documents
from tests.harness.yaml_text import parsed

ROOT = Path(__file__).parents[3]


def test_every_document_of_the_repository_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    kept = [*ROOT.glob("openapi/*.yaml"), *ROOT.glob("asyncapi/*.yaml")]
    assert sorted(path.stem for path in kept) == sorted(ApiDocument)
    for path in kept:
        assert run(["openapi", path.stem]) == 0
        printed = capsys.readouterr().out
        assert printed == path.read_text()
        assert {"openapi", "asyncapi"} & set(parsed(printed))


def test_they_are_listed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["openapi"]) == 0
    assert capsys.readouterr().out.split() == list(ApiDocument)
    for _ in range(2):
        assert run(["openapi", "--folder", str(tmp_path / "api")]) == 0
    assert (tmp_path / "api/proto/packhorse/wire/v1/package.proto").exists()
    assert (tmp_path / "api/asyncapi/events.yaml").exists()
    assert run(["openapi", "unknown"]) == 2


def test_where_they_are_is_no_place_to_write_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proto").symlink_to(ROOT / "proto")
    for folder in (ROOT, tmp_path):
        assert run(["openapi", "--folder", str(folder)]) == 2
        assert "name another one" in capsys.readouterr().err


@pytest.mark.parametrize("taken", ["api", "api/openapi", "api/proto/packhorse"])
def test_a_folder_that_cannot_be_written_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: str
) -> None:
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("a file, where a folder is to be")
    assert run(["openapi", "--folder", str(tmp_path / "api")]) == 1
    [reported] = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'api'} can't be written: " in reported


def test_the_wheel_carries_them(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    with zipfile.ZipFile(tmp_path / made.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
    inside = "packhorse_services/cli/documents"
    assert {f"{inside}/{one.path}" for one in ApiDocument} <= names
    assert f"{inside}/proto/packhorse/wire/v1/package.proto" in names
    assert documents() == ROOT
