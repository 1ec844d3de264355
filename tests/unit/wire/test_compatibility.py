"""The wire stays compatible with what was released, and the generated code is current."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.wire.compatibility import RELEASED, Description, breaks, describe

ROOT = Path(__file__).parents[3]


def test_nothing_released_has_changed_its_meaning() -> None:
    assert breaks(json.loads(RELEASED.read_text()), describe()) == []


def _fields(description: Description, message: str = "PackageMessage") -> Description:
    fields: Description = description["messages"][message]["fields"]
    return fields


def test_an_entry_can_be_read_from_the_bytes_of_its_package() -> None:
    """`has_entry` does so: each field of an entry is the same field of a package."""
    entry, package = _fields(describe(), "PackageEntry"), _fields(describe())
    assert entry == {tag: field for tag, field in package.items() if tag in entry}


def _reuse(present: Description) -> None:
    _fields(present)["3"]["name"] = "colour"


def _retype(present: Description) -> None:
    _fields(present)["5"]["type"] = "int32"


def _repeat(present: Description) -> None:
    _fields(present)["12"]["label"] = "repeated"


def _leave_the_oneof(present: Description) -> None:
    del _fields(present)["6"]["oneof"]


def _remove(present: Description) -> None:
    del _fields(present)["3"]


def _forget_a_reservation(present: Description) -> None:
    present["messages"]["PackageMessage"]["reserved"] = []


def _remove_a_message(present: Description) -> None:
    del present["messages"]["Binary"]


def _renumber_an_enum(present: Description) -> None:
    values = present["enums"]["Action"]
    values["0"], values["1"] = values["1"], values["0"]


@pytest.mark.parametrize(
    "change",
    [
        _reuse,
        _retype,
        _repeat,
        _leave_the_oneof,
        _remove,
        _forget_a_reservation,
        _remove_a_message,
        _renumber_an_enum,
    ],
)
def test_the_check_finds_each_kind_of_break(change: Callable[[Description], None]) -> None:
    present = copy.deepcopy(describe())
    present["messages"]["PackageMessage"]["fields"]["12"]["label"] = "optional"
    released = copy.deepcopy(present)
    change(present)
    assert breaks(released, present) != []


def test_a_new_field_and_a_reserved_one_are_no_breaks() -> None:
    released, present = describe(), copy.deepcopy(describe())
    _fields(present)["99"] = {"name": "colour", "type": "string", "label": "optional"}
    del _fields(present)["12"]
    present["messages"]["PackageMessage"]["reserved"].append([12, 12])
    assert breaks(released, present) == []


def test_the_committed_code_is_what_protoc_makes(tmp_path: Path) -> None:
    folder = ROOT / "proto"
    sources = [path.relative_to(folder) for path in folder.glob("packhorse/wire/v1/*.proto")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "."]
    outputs = [f"--python_out={tmp_path}", f"--mypy_out={tmp_path}"]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*command, *outputs, *map(str, sources)],
        cwd=folder,
        check=True,
        env={**os.environ, "PATH": tools},
    )
    made = {path.name: path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    committed = (ROOT / "shared" / "packhorse" / "wire" / "v1").glob("*_pb2.py*")
    assert made == {path.name: path.read_text() for path in committed}
