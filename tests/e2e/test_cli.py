"""The command line against a running stack: what scripts see of it."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from packhorse.client.addresses import read_token
from packhorse_services.cli.app import run
from tests.harness.command_line import Up, packhorse, packhorse_program
from tests.harness.imported import COMMAND_LINE
from tests.harness.processes import Process, first_lines
from tests.harness.waiting import eventually, pause

WAIT = ("--wait", "--timeout", "300")


@pytest.fixture
def page(up: Up) -> str:
    """A page of the author that is not distributed."""
    stack = json.loads(up.output.read_text())
    headers = {"Authorization": f"Bearer {read_token(Path(stack['token_file']))}"}
    body = {"type": "page", "properties": {"title": "Hello"}}
    httpx.put(
        f"{stack['content']}/content/cli/page", json=body, headers=headers, timeout=120
    ).raise_for_status()
    return "/cli/page"


def test_a_distribution_that_is_waited_for_is_everywhere(up: Up, page: str) -> None:
    identifier = packhorse("distribute", page, *WAIT, data=up.data).stdout.strip()
    named = packhorse("get", "distribution", identifier, "-o", "name", data=up.data)
    assert named.stdout.strip() == identifier
    shown = packhorse("get", "distribution", identifier, "-o", "json", data=up.data)
    states = {one["subscriber"]: one["state"] for one in json.loads(shown.stdout)["subscribers"]}
    assert states == dict.fromkeys(["sub1", "sub2", "sub3"], "IMPORTED")


def test_a_repeated_key_is_the_same_distribution(up: Up, page: str) -> None:
    said = [packhorse("distribute", page, "--key", "cli-1", data=up.data).stdout for _ in range(2)]
    assert said[0] == said[1]


def test_a_dry_run_reports_and_publishes_nothing(up: Up, page: str) -> None:
    packhorse("distribute", page, *WAIT, data=up.data)  # and whatever was before it
    before = _offsets(up)
    said = packhorse("distribute", "--deep", "/cli", "--dry-run", data=up.data).stdout
    assert "nodes        2" in said
    assert "inline" in said
    assert _offsets(up) == before


def test_waiting_too_long_is_124_and_says_for_whom(up: Up, page: str) -> None:
    pid = up.pids()["sub3"]
    pause(pid)
    try:
        late = packhorse(
            *("distribute", page, "--wait", "--timeout", "1"), data=up.data, check=False
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    assert late.returncode == 124
    assert "sub3 QUEUED" in late.stderr
    assert late.stdout.startswith("dstrpck-"), "the distribution goes on, and can be asked for"
    eventually(lambda: _lengths(up) == [0, 0, 0], what="sub3 caught up")


def _lengths(up: Up) -> list[int]:
    queues = json.loads(packhorse("get", "queues", "-o", "json", data=up.data).stdout)["queues"]
    return [queue["length"] for queue in queues]


def _offsets(up: Up) -> list[int]:
    queues = json.loads(packhorse("get", "queues", "-o", "json", data=up.data).stdout)["queues"]
    return [queue["offset"] for queue in queues]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["distribute", "/no/such/page"], 3, "'/no/such/page' does not exist"),
        (["distribute", "relative"], 2, "is not absolute"),
        (["errors", "redistribute", "sub1", "0"], 3, "no package with offset 0"),
        (["errors", "redistribute", "sub1", "0", "1"], 3, "nothing was done"),
        (["errors", "dismiss", "sub1", "0", "--yes"], 3, "no package with offset 0"),
        (["forget", "subscriber", "sub1", "--yes"], 4, "announces itself"),
        (["forget", "subscriber", "nobody", "--yes"], 3, "no subscriber 'nobody'"),
        (["distribute"], 2, "name at least one path"),
        (["get", "queue", "nobody"], 3, "no subscriber 'nobody'"),
        (["get", "errors", "nobody"], 3, "no subscriber 'nobody'"),
        (["get", "distribution", "dstrpck-0-0"], 3, "no such distribution"),
        (["clear", "queue", "nobody", "--yes"], 3, "no subscriber 'nobody'"),
        (["clear", "queue", "sub1", "--yes", "--up-to", "999999"], 2, "the log ends at offset"),
        (["--token", "wrong", "get", "queues"], 1, "--token-file"),
        (["--token-file", "/no/such/file", "get", "queues"], 2, "can't be read"),
        (["get", "nonsense"], 2, "No such command"),
        (["get", "queue", "sub1", "--action", "x"], 2, "query/action"),
        (["get", "distributions", "--state", "x"], 2, "query/state"),
        (["get", "distributions", "--path-prefix", "x"], 2, "query/path_prefix"),
        (["events", "--types", "x"], 2, "query/types"),
        (["events", "--after", "x"], 2, "--after is not the id of an event"),
        (["events", "--after", ""], 2, "--after is empty"),
        (["events", "--subscriber", "nobody"], 3, "no subscriber 'nobody'"),
        (["get", "commands", "--subscriber", "nobody"], 3, "no subscriber 'nobody'"),
        (["compare", "/cli", "--subscriber", "sub9"], 3, "no subscriber 'sub9'"),
        (["compare", "/", "--subscriber", "sub1", "--with", "sub9"], 3, "no subscriber 'sub9'"),
        (["distribute", "/cli", "--key", ""], 2, "key is empty"),
        (["distribute", "--from-file", "x", "--producer", ""], 2, "go together"),
        (["--server", "nonsense", "get", "queues"], 2, "no URL of a server"),
        (["get", "queues", "-o", "nonsense"], 2, "nonsense"),
    ],
)
def test_errors_have_a_code_and_a_sentence(
    up: Up, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert run(["--data", str(up.data), *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert "Traceback" not in said.err


def test_nobody_at_the_other_end_is_one_sentence(up: Up) -> None:
    server = "http://127.0.0.1:1"
    failed = packhorse("--server", server, "get", "queues", check=False)
    assert failed.returncode == 1
    assert "nobody answers at" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("kind", ["queues", "subscribers"])
def test_every_form_of_a_list(up: Up, kind: str) -> None:
    names = packhorse("get", kind, "-o", "name", data=up.data).stdout.splitlines()
    assert names == ["sub1", "sub2", "sub3"]
    document = json.loads(packhorse("get", kind, "-o", "json", data=up.data).stdout)
    assert [one["subscriber"] for one in document[kind]] == names
    table = packhorse("get", kind, data=up.data).stdout.splitlines()
    wide = packhorse("get", kind, "-o", "wide", data=up.data).stdout.splitlines()
    assert table[0].split()[:2] == ["SUBSCRIBER", "STATE"]
    assert [line.split()[0] for line in table[1:]] == names
    assert len(wide[0]) > len(table[0])


def test_a_list_is_paged_with_the_cursor_that_it_names(up: Up, page: str) -> None:
    for _ in range(2):
        packhorse("distribute", page, *WAIT, data=up.data)
    first = packhorse("get", "distributions", "--limit", "1", "-o", "name", data=up.data)
    words = first.stderr.replace(",", "").split()
    cursor = words[words.index("--cursor") + 1]
    options = ("--limit", "1", "-o", "name", "--cursor", cursor)
    second = packhorse("get", "distributions", *options, data=up.data)
    both = packhorse("get", "distributions", "--limit", "2", "-o", "name", data=up.data)
    assert both.stdout == first.stdout + second.stdout


def test_clearing_asks_first(up: Up) -> None:
    nothing = packhorse("clear", "queue", "sub1", data=up.data)
    assert "nothing of agent main waits for sub1" in nothing.stderr
    assert nothing.stdout == ""
    reported = packhorse("clear", "queue", "sub1", "--yes", data=up.data)
    assert len(reported.stdout.strip()) == 32


def test_files_come_out_as_they_went_in(up: Up, tmp_path: Path) -> None:
    files = {"a.html": b"<p>a</p>", "deep/er/b.bin": bytes(range(256)) * 5000, "deep/empty": b""}
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    packhorse("content", "import", str(tmp_path / "in"), "--at", "/cli/files", data=up.data)
    packhorse("content", "export", "/cli/files", str(tmp_path / "out"), data=up.data)
    for name, content in files.items():
        assert (tmp_path / "out" / name).read_bytes() == content


def test_a_service_s_refusal_keeps_its_exit_code(up: Up, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    words = ("content", "export", "/no/such/node")
    refused = packhorse_program(*words, target, data=up.data, check=False)
    assert refused.returncode == 3
    assert refused.stderr == "packhorse-content: there is nothing at '/no/such/node'\n"


def test_content_goes_to_the_server_that_is_named_and_from_a_subscriber(
    up: Up, tmp_path: Path
) -> None:
    stack = json.loads(up.output.read_text())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.html").write_text("<p>a</p>")

    def content(*arguments: str, server: str, code: int = 0) -> str:
        done = packhorse("--server", server, "content", *arguments, data=up.data, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr

    source, target = str(tmp_path / "in"), str(tmp_path / "out.zip")
    content("import", source, "--at", "/cli/named", server=stack["content"])
    content("export", "/cli/named", target, server=stack["subscribers"]["sub1"], code=3)
    packhorse("distribute", "--deep", "/cli/named", "--wait", data=up.data)
    content("export", "/cli/named", target, server=stack["subscribers"]["sub1"])
    with zipfile.ZipFile(target) as archive:
        assert archive.read("a.html") == b"<p>a</p>"
    refused = packhorse("--server", "http://127.0.0.1:1", "token", data=up.data, check=False)
    assert refused.returncode == 3, "the stack's token is for the stack's own servers"
    assert "none of the stack's" in refused.stderr


def test_config_check_shows_no_secret(up: Up) -> None:
    token = packhorse("token", data=up.data).stdout.strip()
    shown = packhorse("config", "check", data=up.data)
    assert "the token is good" in shown.stderr
    postgres_password = (up.data / "postgres" / "password").read_text().strip()
    for secret in (token, postgres_password):
        assert secret not in shown.stdout + shown.stderr


def test_topics_are_checked(up: Up) -> None:
    assert packhorse("topics", "check", data=up.data).stdout.splitlines() == [
        f"aemdistribution_{part}" for part in ("package", "status", "discovery", "command", "event")
    ]
    missing = packhorse("topics", "check", "--topic-prefix", "other", data=up.data, check=False)
    assert missing.returncode == 1
    assert "packhorse topics create" in missing.stderr


def test_a_cleanup_can_be_tried_without_removing(up: Up) -> None:
    said = packhorse_program("cleanup", "run", "--dry-run", data=up.data).stdout
    assert "the log holds offsets" in said


def test_the_version_and_help_need_no_stack() -> None:
    assert packhorse("--version").stdout.startswith("packhorse ")
    assert "distribute" in packhorse("--help").stdout


def test_watching_shows_it_again(up: Up, tmp_path: Path) -> None:
    watching = ("--data", str(up.data), "get", "queues", "-o", "name", "--watch")
    process = Process("watch", (sys.executable, "-m", COMMAND_LINE, *watching), {}, tmp_path)
    process.start()
    try:
        shown = first_lines(process, 7)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 130
    finally:
        process.kill()
    headings = [text for text in process.said().splitlines() if text.startswith("# ")]
    names = ["sub1", "sub2", "sub3"]
    assert shown == [*names, "", *names]
    assert headings == sorted(set(headings)), "each time says when it was"


def test_subscribers_are_operated(up: Up) -> None:
    def operate(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return packhorse(*words, data=up.data, check=check)

    operate("pause", "subscriber", "sub3", *WAIT)
    reset = ("reset", "offset", "sub3", "--to", str(_offsets(up)[2]), "--yes")
    running = operate(*reset, check=False)
    assert running.returncode == 4
    assert "stop" in running.stderr
    operate("stop", "subscriber", "sub3", *WAIT)
    identifier = operate(*reset, *WAIT).stdout.strip()
    operate("resume", "subscriber", "sub3", *WAIT)
    shown = operate("get", "command", identifier).stdout
    assert "RESET" in shown
    assert "APPLIED" in shown
    listed = operate("get", "commands", "--subscriber", "sub3", "-o", "name").stdout.split()
    assert identifier in listed
    retried = operate("retry", "subscriber", "sub3", *WAIT)
    assert "RETRY" in operate("get", "command", retried.stdout.strip()).stdout
    assert "asked to retry" in retried.stderr
    assert operate("retry", "subscriber", "nobody", check=False).returncode == 3
    assert operate("clear", "queue", "sub3", "--yes", *WAIT).stdout.strip().isdigit()
    assert operate("pause", "subscriber", "nobody", check=False).returncode == 3
    assert operate("get", "command", "0" * 32, check=False).returncode == 3
