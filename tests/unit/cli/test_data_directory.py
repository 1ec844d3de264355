"""One supervisor a data folder, and what it lets others know."""

from pathlib import Path

import pytest

from packhorse.client.stack_folder import NotRunning, RunningStack
from packhorse_services.cli.client.data_directory import (
    DataDirectory,
    DataInUse,
    DataUnusable,
)


def test_a_folder_in_use_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    second = DataDirectory(tmp_path / "data").claimed()
    with (
        directory.claimed(),
        pytest.raises(DataInUse, match=r"in use by process \d+; stop"),
        second,
    ):
        pytest.fail("two supervisors on one folder")


def test_a_glance_at_a_folder_in_use_says_the_same_and_makes_nothing(tmp_path: Path) -> None:
    DataDirectory(tmp_path / "none").refuse_claimed()
    assert not (tmp_path / "none").exists()
    directory = DataDirectory(tmp_path / "data")
    with directory.claimed(), pytest.raises(DataInUse, match=r"in use by process \d+; stop"):
        DataDirectory(tmp_path / "data").refuse_claimed()
    directory.refuse_claimed()


def test_a_stack_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with directory.claimed(), pytest.raises(NotRunning, match="is starting or ending; try again"):
        directory.running()


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    unusable = DataDirectory(tmp_path / "file").claimed()
    with pytest.raises(DataUnusable, match="can't be the data folder"), unusable:
        pass


def test_a_folder_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with DataDirectory(tmp_path).claimed():
            pass


def test_what_was_published_is_found_while_it_runs(tmp_path: Path, stack: RunningStack) -> None:
    directory = DataDirectory(tmp_path)
    with directory.claimed():
        directory.publish(stack, {"PACKHORSE_JOURNAL_URL": "memory://x"})
        assert directory.running() == stack
        assert directory.author_settings() == {"PACKHORSE_JOURNAL_URL": "memory://x"}
    with pytest.raises(NotRunning, match="packhorse up --data"):
        directory.running()


def test_a_stack_that_was_killed_does_not_run(tmp_path: Path, stack: RunningStack) -> None:
    directory = DataDirectory(tmp_path)
    with directory.claimed():
        directory.publish(stack, {})
        left = (tmp_path / "running.json").read_text()
    (tmp_path / "running.json").write_text(left)
    with pytest.raises(NotRunning, match="packhorse up --data"):
        directory.running()
    with directory.claimed():
        pass


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    foreign = DataDirectory(tmp_path).claimed()
    with pytest.raises(DataUnusable, match=r"thesis.txt.*--data"), foreign:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["lost+found", "tokens.json"])
def test_an_empty_disk_and_a_folder_with_prepared_tokens_are_taken(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    with DataDirectory(tmp_path).claimed():
        assert (tmp_path / "blobs").is_dir()


def test_what_is_in_it_is_for_the_owner_only(tmp_path: Path, stack: RunningStack) -> None:
    directory = DataDirectory(tmp_path)
    with directory.claimed():
        directory.publish(stack, {})
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    files = dict.fromkeys(("running.json", "author.json", "connector.key", "lock"), 0o600)
    assert modes == {**files, "blobs": 0o700, "logs": 0o700}
    key = directory.connector_key.read_text()
    with directory.claimed():
        assert directory.connector_key.read_text() == key


def test_a_folder_that_never_ran_has_no_settings(tmp_path: Path) -> None:
    assert DataDirectory(tmp_path / "none").author_settings() == {}
