"""The persistent instance id."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.open import instance_id


def test_a_given_id_is_taken_and_no_file_is_made(tmp_path: Path) -> None:
    assert instance_id("publisher-1", tmp_path / "id") == "publisher-1"
    assert not (tmp_path / "id").exists()


def test_a_file_keeps_the_id_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "data" / "id"
    made = instance_id(file=file)
    assert instance_id(file=file) == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["id"]


def test_without_a_file_each_start_has_another_id() -> None:
    assert instance_id() != instance_id()


def test_programs_that_start_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(lambda _: instance_id(file=tmp_path / "id"), range(64)))
    assert len(ids) == 1


@pytest.mark.parametrize("content", [b"", b"a b", b"\xff\xfe", b"x" * 101, b"a\nb", b"-x"])
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "id").write_bytes(content)
    with pytest.raises(InvalidConfiguration, match="instance id file"):
        instance_id(file=tmp_path / "id")


def test_a_folder_that_can_t_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfiguration, match="instance id file"):
        instance_id(file=tmp_path / "file" / "id")


def test_a_bad_id_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="instance id"):
        instance_id("a/b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topology_store": "paxos"},
        {"topology_interval_s": 10.0},
        {"topology_interval_s": 0.0},
        {"topology_interval_s": 5.0},
        {"topology_store": "voting", "topology_timeout_s": 15.0},
        {"min_event_delay_s": 11.0},
        {"topology_timeout_s": float("nan")},
    ],
)
def test_settings_that_can_t_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TopologyConfiguration(**wrong)


def test_each_store_has_its_times() -> None:
    assert TopologyConfiguration().topology_times == (2.0, 10.0)
    assert TopologyConfiguration(topology_store="voting").topology_times == (15.0, 20.0)
