"""`packhorse pipeline TASK` on the stack of `packhorse up`, one after the other, as documented."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.client.addresses import read_token
from tests.harness.command_line import Up, data_folder, packhorse_program
from tests.harness.spark import spark_environment, warm_jvm

pytestmark = pytest.mark.spark

TOP = "/tasks"
WAIT = ("--wait", "--timeout", "300")
NAMES = ("a", "b", "c")


def content(up: Up, method: str, path: str, **options: Any) -> Any:
    """Ask the author's content service."""
    stack = json.loads(up.output.read_text())
    headers = {"Authorization": f"Bearer {read_token(Path(stack['token_file']))}"}
    answer = httpx.request(
        method, f"{stack['content']}/content{path}", headers=headers, timeout=120, **options
    )
    return answer.raise_for_status().json()


def write(up: Up, path: str, title: str) -> None:
    content(up, "PUT", path, json={"type": "page", "properties": {"title": title}})


@pytest.fixture
def warm() -> Iterator[dict[str, str]]:
    """A JVM for the tasks' sessions; those in `test_archive_pair.py` begin with their own."""
    with warm_jvm() as settings:
        yield settings


@pytest.fixture
def stack() -> Iterator[Up]:
    with data_folder() as folder:
        up = Up(folder, "--subscribers", "2")
        up.start()
        up.ready()
        yield up
        up.stop()


@pytest.fixture
def history(stack: Up, warm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Up:
    """Three pages that every subscriber has, one of them in two versions."""
    for name, value in (spark_environment() | warm).items():
        monkeypatch.setenv(name, value)
    for name in NAMES:
        write(stack, f"{TOP}/{name}", "first")
    sent = packhorse_program("distribute", "--deep", TOP, "--bulk", data=stack.data)
    assert "1 parts sent" in sent.stderr
    write(stack, f"{TOP}/a", "second")
    packhorse_program("distribute", f"{TOP}/a", *WAIT, data=stack.data)
    return stack


def test_every_task_one_after_the_other(
    history: Up, warm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = packhorse_program("pipeline", *arguments, data=history.data, check=False)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def documents(*arguments: str) -> list[Any]:
        return [json.loads(line) for line in task(*arguments, "--json").stdout.splitlines()]

    archived, measured = task("run", "archive", "measures").stdout.splitlines()
    assert "archived" in archived
    assert "measures made anew" in measured
    assert "sub1" in packhorse_program("report", "delivery", data=history.data).stdout

    [made] = documents("snapshot")
    assert made["new"]
    assert made["nodes"] >= len(NAMES)

    before = str(made["offset"] - 1)
    [restored] = documents("at", "--path", TOP, "--offset", before, "--restore")
    assert restored["distribute"] == f"packhorse distribute --deep {TOP}"
    assert content(history, "GET", f"{TOP}/a")["properties"]["title"] == "first"

    # Nobody archives that before the audit, which then does.
    packhorse_program(*restored["distribute"].split()[1:], *WAIT, data=history.data)
    with monkeypatch.context() as production:  # of all tasks it has the largest plans
        for name, value in spark_environment(as_in_production=True).items():
            production.setenv(name, value)
        [audited] = documents("audit", "--wait", "0")
    assert [one["subscriber"] for one in audited["subscribers"]] == ["sub1", "sub2"]
    assert all(one["equal"] for one in audited["subscribers"]), audited
    [mark] = documents("mark")
    with monkeypatch.context() as nowhere:  # it is told so without a session
        for name in warm:
            nowhere.delenv(name)
        nowhere.setenv("PACKHORSE_SPARK_MASTER", "foo://nowhere")
        refused = task("sweep", "--mark", mark["id"], code=1)
    assert f"error: {mark['id']} ended " in refused.stderr
    assert "would be deleted" in task("upkeep", "--dry-run").stdout
