"""Running a program: ready line, signals during work, death of a part, exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.runtime import connection
from tests.harness.imported import Imported, begin_module

DEADLINE_S = 180
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("service", ["console", "jobs", "publisher", "subscriber", "topology"])
def test_a_program_that_only_serves_shows_its_usage_and_takes_no_argument(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would start with a setting that it was not given."""
    program = import_module(f"packhorse_services.{service}.__main__")
    for argument, code, shown in (
        ("--help", 0, "Usage: "),
        ("--port", 2, "No such option"),
    ):
        monkeypatch.setattr(sys, "argv", [f"packhorse-{service}", argument])
        with pytest.raises(SystemExit) as ended:
            program.main()
        assert ended.value.code == code
        assert shown in "".join(capsys.readouterr())


class Program:
    """The program with what it writes: a fork that has imported its modules, unless it is strict.

    A strict one is an interpreter of its own, which fails for a warning up to its very end.
    """

    def __init__(self, mode: str, *, strict: bool = False) -> None:
        self.url = ""
        out, said = os.pipe(), os.pipe()
        self.output, self.errors = (os.fdopen(pipe[0]) for pipe in (out, said))
        command, written = ("tests.unit.runtime.served", mode), (out[1], said[1])
        with Path(os.devnull).open() as nothing:
            files = (nothing.fileno(), *written)
            self.process = _strict(command, files) if strict else _fork(command, files)
        for file in written:
            os.close(file)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def until_said(self, words: str) -> None:
        while words not in self.errors.readline():
            assert self.process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        os.kill(self.process.pid, number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        errors = self.errors.read()
        return self.process.wait(DEADLINE_S), errors

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE_S)
        self.output.close()
        self.errors.close()


def _fork(command: tuple[str, ...], files: tuple[int, ...]) -> Imported:
    return begin_module(command, os.environ, ROOT, files)


def _strict(command: tuple[str, ...], files: tuple[int, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


@contextmanager
def _running(mode: str = "plain", *, strict: bool = False) -> Iterator[Program]:
    with closing(Program(mode, strict=strict)) as program:
        ready = json.loads(program.output.readline())
        assert ready["event"] == "ready"
        assert ready["pid"] == program.process.pid
        program.url = ready["url"]
        yield program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_cleanly(number: int) -> None:
    with _running(strict=True) as program:
        assert httpx.get(f"{program.url}/readyz", timeout=DEADLINE_S).status_code == 200
        code, errors = program.end(number)
    assert code == 0
    assert "component stopped" in errors
    assert "Traceback" not in errors


def test_a_signal_that_comes_before_the_loop_heeds_it_ends_the_program_cleanly() -> None:
    with closing(Program("signalled", strict=True)) as program:
        code, errors = program.ended()
    assert code == 0, errors
    assert "component stopped" in errors
    assert "Traceback" not in errors


def test_a_signal_that_comes_while_a_program_prepares_ends_it_cleanly() -> None:
    with closing(Program("preparing")) as program:
        program.until_said("preparing")
        assert program.end() == (0, "")


def test_a_second_signal_waits_for_no_component() -> None:
    with _running("stubborn") as program:
        os.kill(program.process.pid, signal.SIGTERM)
        program.until_said("component stopped")
        assert program.end() == (0, "")


def test_work_that_does_not_end_in_a_thread_keeps_no_program_alive() -> None:
    with _running("deaf") as program, socket.create_connection(program.address) as client:
        client.sendall(b"GET /held-thread HTTP/1.1\r\nHost: localhost\r\n\r\n")
        program.until_said("thread held")
        code, errors = program.end()
    assert code == 0
    assert "component stopped" in errors


def test_a_request_and_a_stream_under_way_are_finished_first() -> None:
    answers: list[Any] = []
    with _running() as program, httpx.Client(base_url=program.url, timeout=DEADLINE_S) as client:
        held = partial(httpx.get, f"{program.url}/held", timeout=DEADLINE_S)
        thread = threading.Thread(target=lambda: answers.append(held()))
        thread.start()
        client.get("/release-at-stop")
        with client.stream("GET", "/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "first"
            os.kill(program.process.pid, signal.SIGTERM)
            assert list(lines) == ["last"]
        thread.join(DEADLINE_S)
        assert [answer.text for answer in answers] == ['"done"']
        code, errors = program.ended()
    assert code == 0
    assert errors.index("Shutting down") < errors.index("component stopped")


def test_a_stream_that_does_not_end_is_cut_after_the_grace() -> None:
    with (
        _running("deaf") as program,
        httpx.stream("GET", f"{program.url}/stream", timeout=DEADLINE_S) as stream,
    ):
        assert next(stream.iter_lines()) == "first"
        code, _ = program.end()
    assert code == 0


def test_a_client_that_does_not_read_is_cut_off() -> None:
    with (
        _running("impatient with readers") as program,
        socket.create_connection(program.address, timeout=DEADLINE_S) as stalled,
    ):
        stalled.sendall(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        program.until_said("flood ended")
        _until_closed(stalled)


@pytest.mark.parametrize("begin", [b"", b"GET / HT"])
def test_a_client_that_does_not_ask_is_cut_off(begin: bytes) -> None:
    with (
        _running("impatient with heads") as program,
        socket.create_connection(program.address, timeout=DEADLINE_S) as slow,
    ):
        slow.sendall(begin)
        assert b" 408 " in _until_closed(slow).split(b"\r\n")[0]


def test_a_part_that_dies_ends_the_program_with_1() -> None:
    with _running() as program:
        httpx.post(f"{program.url}/die", timeout=DEADLINE_S)
        code, errors = program.ended()
    assert code == 1
    assert "the process ends because a component has died" in errors
    assert "poisoned" in errors
    assert "component stopped" in errors


@pytest.mark.parametrize(
    ("mode", "code", "sentence"),
    [
        ("transient", 1, "can't start: the database is away\n"),
        ("permanent", 2, "can't start: the topic has two partitions\n"),
    ],
)
def test_a_start_that_fails_says_why_in_one_sentence(mode: str, code: int, sentence: str) -> None:
    with closing(Program(mode)) as program:
        assert program.ended() == (code, sentence)
        assert program.output.read() == ""


def _until_closed(connected: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connected.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with _running() as program:
        yield program.address


def test_a_head_without_end_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=DEADLINE_S) as attack:
        attack.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * connection.MAX_HEAD_BYTES)
        assert b" 431 " in _until_closed(attack).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo st: a\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_too(address: tuple[str, int], request_bytes: bytes) -> None:
    with socket.create_connection(address, timeout=DEADLINE_S) as attack:
        attack.sendall(request_bytes)
        answer = _until_closed(attack)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.split(b"\r\n")[0]
    assert json.loads(body)["type"] == "/problems/malformed"
