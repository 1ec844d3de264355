"""`packhorse distribute --from-file`: killed in the middle, run again, nothing is sent twice."""

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from packhorse.client.addresses import read_token
from packhorse.messaging.numbered import number_of
from packhorse.messaging.open import open_journal
from packhorse_services.cli.client.data_directory import DataDirectory
from tests.harness.command_line import Up, packhorse, program
from tests.harness.imported import COMMAND_LINE
from tests.harness.journals import everything
from tests.harness.processes import Process

LINES = 400
SEND = "packhorse_services.cli.distribute.replay:_Replay._send"
"""What sends lines: at so many calls of it a replay ends itself, however slow the test is."""


@pytest.fixture
def paths(up: Up, tmp_path: Path) -> Path:
    """A file with a comment, a JSON line, and many paths that exist."""
    stack = json.loads(up.output.read_text())
    headers = {"Authorization": f"Bearer {read_token(Path(stack['token_file']))}"}
    for name in ("a", "b"):
        body = {"type": "page", "properties": {"title": name}}
        httpx.put(
            f"{stack['content']}/content/replay/{name}", json=body, headers=headers, timeout=120
        )
    file = tmp_path / "paths.txt"
    texts = ["# what to send", '{"deep_paths": ["/replay"]}', *["/replay/a", "/replay/b"] * LINES]
    file.write_text("\n".join(texts[:LINES]) + "\n")
    return file


def sequences(up: Up, producer: str) -> list[int]:
    """Return what the journal holds of a producer, in its order."""
    url = DataDirectory(up.data).author_settings()["PACKHORSE_JOURNAL_URL"]
    with closing(open_journal(url, client_name="tests")) as journal:
        records = everything(journal, "aemdistribution_package")
    numbers = [number_of(record.headers) for record in records]
    return [n.sequence for n in numbers if n and f"/{producer}/" in n.producer]


@pytest.fixture
def publisher(up: Up) -> Iterator[httpx.Client]:
    """A connection to the publisher: while a program starts, a replay may send everything."""
    settings = DataDirectory(up.data).author_settings()
    headers = {"Authorization": f"Bearer {settings['PACKHORSE_PUBLISHER_TOKEN']}"}
    url = settings["PACKHORSE_PUBLISHER_URL"]
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        yield client


def last_sequence(publisher: httpx.Client, producer: str) -> int:
    answer = publisher.get(f"/producers/{producer}")
    return int(answer.json()["last_sequence"] or 0) if answer.is_success else 0


def test_r5_a_replay_that_is_killed_goes_on_and_sends_nothing_twice(
    up: Up, paths: Path, publisher: httpx.Client, tmp_path: Path
) -> None:
    command = ("distribute", "--from-file", str(paths), "--producer", "killed", "--batch", "9")
    whole = (COMMAND_LINE, "--data", str(up.data), *command)
    for point in ("before20", "after20"):
        deadly = (sys.executable, "-m", "tests.harness.killed_program", f"{SEND}@{point}")
        killed = Process(point, (*deadly, *whole), {}, tmp_path)
        killed.start()
        assert killed.wait(540) == -signal.SIGKILL, killed.said()
    sent = last_sequence(publisher, "killed")
    assert 0 < sent < LINES
    said = packhorse(*command, data=up.data).stderr
    assert "dealt with by an earlier replay" in said
    assert sequences(up, "killed") == list(range(2, LINES + 1))
    assert "0 published" in packhorse(*command, data=up.data).stderr


def test_r5_replays_that_race_fence_each_other_and_send_each_line_once(
    up: Up, paths: Path, tmp_path: Path
) -> None:
    command = ("distribute", "--from-file", str(paths), "--producer", "raced")
    whole = (sys.executable, "-m", COMMAND_LINE, "--data", str(up.data), *command)
    racing = [Process(f"raced-{number}", whole, {}, tmp_path) for number in range(2)]
    for process in racing:
        process.start()
    codes = Counter(process.wait(540) for process in racing)
    assert codes in ({0: 1, 4: 1}, {0: 2}), [process.said() for process in racing]
    assert sequences(up, "raced") == list(range(2, LINES + 1))


def test_a_refused_line_is_named_and_the_replay_goes_on_from_there(
    up: Up, paths: Path, tmp_path: Path
) -> None:
    file = tmp_path / "refused.txt"
    file.write_text("/replay/a\n/nowhere\n/replay/b\n")
    command = ("distribute", "--from-file", str(file), "--producer", "refused")
    stopped = packhorse(*command, data=up.data, check=False)
    assert stopped.returncode == 3
    assert f"{file}:2:" in stopped.stderr
    assert sequences(up, "refused") == [1]
    with file.open("a") as more:
        more.write("/nowhere/either\n")
    gone_on = packhorse(*command, "--keep-going", data=up.data, check=False)
    assert gone_on.returncode == 1
    assert "Value error" not in gone_on.stderr
    assert sequences(up, "refused") == [1, 3]
    assert "0 published" in packhorse(*command, data=up.data).stderr


def test_stdin_is_a_file_too(up: Up) -> None:
    command = ("distribute", "--from-file", "-", "--producer", "piped", "--action", "test")
    program(COMMAND_LINE, "--data", str(up.data), *command, stdin="/a\n/b\n", check=True)
    assert sequences(up, "piped") == [1, 2]
    shown = packhorse("get", "producer", "piped", data=up.data).stdout
    assert "piped" in shown


@pytest.mark.parametrize("options", [("--producer", "p"), ("--from-file", "f"), ("/a",)])
def test_options_that_do_not_go_together_are_a_usage_error(
    up: Up, options: tuple[str, ...]
) -> None:
    both = ("--from-file", "f", "--producer", "p") if options == ("/a",) else ()
    refused = packhorse("distribute", *both, *options, data=up.data, check=False)
    assert refused.returncode == 2
    assert "--producer" in refused.stderr
