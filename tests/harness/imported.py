"""Programs that begin with their modules imported: forks of a process that has imported them.

Importing takes more of the processor's time than all else that a program does in most tests. What
begins like this is the same module with the same environment, in a process of its own that is
paused, killed and waited for like any other; only the interpreter's own start is left out.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, NoReturn

SERVICES = tuple(
    f"packhorse_services.{name}"
    for name in ("publisher", "subscriber", "content", "cleanup", "topology", "jobs", "console")
)
COMMAND_LINE, PIPELINE = "packhorse_services.cli", "packhorse_services.pipeline"
_OF_PIPELINE = ((PIPELINE, "serve"), (PIPELINE, "worker"))
"""Those of its programs that share their modules with the services; its tasks have Spark."""
_TASKS = (
    f"{PIPELINE}.archive.task",
    *(f"{PIPELINE}.at.task", f"{PIPELINE}.audit.task", f"{PIPELINE}.bulk.prepare"),
    *(f"{PIPELINE}.measures.task", f"{PIPELINE}.snapshot.task"),
    *(f"{PIPELINE}.sweep.spark_report", f"{PIPELINE}.upkeep.task"),
)
_FOR_SPARK = "PACKHORSE_SPARK_CONF"
"""A program with this setting is a fork of a process of its own, which has the tasks, too."""
_KILLED = "tests.harness.killed_program"
"""Ends another program at a point."""
_OURS = (
    "tests.chaos.",
    "tests.harness.jobs.",
    "tests.harness.restore_subject",
    "tests.harness.script",
    "tests.harness.stack_program",
    "tests.harness.topology.",
)
_LATER = (
    "encodings.idna",
    "h11",
    "httpcore",
    "httpcore._backends.auto",
    "importlib.resources.readers",
    "packhorse.blobs.filesystem",
    "packhorse.messaging.sql",
    "rich._emoji_codes",
    "typer._adapters",
    "typer.rich_utils",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
)
"""What others import when it is first needed, which is in each program."""
_PR_SET_PDEATHSIG = 1
_LONGEST = 2**20


def can_begin(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether this is a module of ours, run by an interpreter without own settings."""
    return (
        sys.platform == "linux"
        and tuple(command[:2]) == (sys.executable, "-m")
        and (
            command[2] in SERVICES
            or command[2].startswith(_OURS)
            or (command[2] == COMMAND_LINE and "up" not in command)
            or tuple(command[2:4]) in _OF_PIPELINE
            or (command[2] in (_KILLED, PIPELINE) and _FOR_SPARK in environment)
            or (command[2] == _KILLED and command[4] != PIPELINE)
        )
        and not any(name.startswith("PYTHON") for name in environment)
    )


class Imported:
    """One such process, with the methods of `subprocess.Popen` that the harness uses."""

    def __init__(self, source: "_Source", pid: int) -> None:
        self.pid, self._source = pid, source
        self._code: int | None = None
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self._code is None and wait([self._ended], 0):
            self._code = self._source.code(self.pid)
            os.close(self._ended)
        return self._code

    def wait(self, timeout: float) -> int:
        """Return its exit code at its end. Raises `subprocess.TimeoutExpired`."""
        if self._code is None and not wait([self._ended], timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self) -> None:
        """Ask it to end, unless it has."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class _Source:
    """The process that programs are forks of, seen from the tests."""

    def __init__(self, kind: str) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
        command = (sys.executable, "-m", __name__, str(theirs.fileno()), kind)
        # It ends with the channel, not with the thread that happened to start it.
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # or numpy begins threads
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._lock = threading.Lock()
        atexit.register(self._end)

    def begin(self, given: Mapping[str, Any], files: Sequence[int]) -> Imported:
        return Imported(self, self._ask(given, files))

    def code(self, pid: int) -> int:
        return self._ask({"ended": pid}, [])

    def _ask(self, given: Mapping[str, Any], files: Sequence[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._channel, [json.dumps(given).encode()], files)
                return int(self._channel.recv(_LONGEST))
            except BaseException:  # an alarm, too: the next answer would be this one's
                self._channel.close()
                _sources.clear()
                raise

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


_sources: dict[str, _Source] = {}
_starting = threading.Lock()


def begin(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: IO[bytes],
    log: IO[bytes],
    *,
    stopped: bool = False,
) -> Imported:
    """Begin what `python -m` would run of ours; it has this environment and no other.

    `stopped` it does nothing before a SIGCONT.
    """
    with Path(os.devnull).open("rb") as nothing:
        files = [file.fileno() for file in (nothing, output, log)]
        return begin_module(command[2:], environment, Path.cwd(), files, stopped=stopped)


def begin_module(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    files: Sequence[int],
    *,
    stopped: bool = False,
) -> Imported:
    """Begin a module, the first of the arguments, in a folder with what it reads and writes."""
    kind = PIPELINE if _FOR_SPARK in environment else COMMAND_LINE
    with _starting:
        if kind not in _sources:
            _sources[kind] = _Source(kind)
    given = {
        "arguments": arguments,
        "environment": dict(environment),
        "folder": str(folder),
        "stopped": stopped,
    }
    return _sources[kind].begin(given, files)


def begin_script(script: Path, environment: Mapping[str, str]) -> Imported:
    """Begin a user's program in its folder; what it says is added to `said` there."""
    with Path(os.devnull).open("rb") as nothing, (script.parent / "said").open("ab") as said:
        files = [file.fileno() for file in (nothing, said, said)]
        arguments = ["tests.harness.script", script.name]
        return begin_module(arguments, environment, script.parent, files)


def _serve(channel: socket.socket) -> list[str]:
    """Fork for whoever asks. Returns only in a fork, with the arguments that it is to run."""
    while True:
        message, files, *_ = socket.recv_fds(channel, _LONGEST, 3)
        if not message:
            os._exit(0)
        given = json.loads(message)
        if "ended" in given:
            answer = os.waitstatus_to_exitcode(os.waitpid(given["ended"], 0)[1])
        elif (answer := forked()) == 0:
            channel.close()
            return _became(given, files)
        for file in files:
            os.close(file)
        channel.send(str(answer).encode())


def forked() -> int:
    """Fork; the parent goes on once the child is a leader of its own session, and on its leash."""
    waiting, begun = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
    os.close(begun)
    if pid:
        os.read(waiting, 1)
    os.close(waiting)
    return pid


def _became(given: Mapping[str, Any], files: Sequence[int]) -> list[str]:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    # A test run in the background ignores it, and what it starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments: list[str] = given["arguments"]
    if given["stopped"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    return arguments


def _main() -> None:
    for module in (f"{COMMAND_LINE}.app", *_LATER):
        importlib.import_module(module)
    for service in SERVICES:
        importlib.import_module(f"{service}.app")
        importlib.import_module(f"{service}.__main__")
        del sys.modules[f"{service}.__main__"]  # or runpy warns that it is to be run twice
    if sys.argv[2] == PIPELINE:
        importlib.import_module(f"{PIPELINE}.program").program()
        for module in _TASKS:
            importlib.import_module(module)
        importlib.import_module(f"{PIPELINE}.engine.python_daemon").prepare()
    assert threading.active_count() == 1, "a fork has no other threads"
    gc.collect()
    gc.freeze()
    module, *arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [module, *arguments]
    code: str | int | None = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    _end(code)


def _end(code: str | int | None) -> NoReturn:
    """End as the interpreter does, without giving back piece by piece what was imported.

    That would write to all of the memory that the forks share, for longer than a command takes.
    """
    if isinstance(code, str):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    _main()
