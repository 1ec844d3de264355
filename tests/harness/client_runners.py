"""Programs in other languages that use the clients as installed packages, one call a line."""

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packhorse import __version__
from tests.harness.client_packages import MODULE, NAME, built
from tests.harness.client_tools import CLIENTS, NODE, jars, node_modules, npm, run

_PROGRAMS = Path(__file__).parents[1] / "clients"


@dataclass
class Told:
    """What came of a call: its result, or how it was refused; and how long it has paused."""

    result: Any
    status: int
    kind: str
    pauses: list[float]


@dataclass
class Runner:
    """A program that makes one call after the other."""

    process: "subprocess.Popen[str]"

    def call(self, what: str, /, **asked: Any) -> Told:
        """Make a call and return what came of it; a call without an answer has the status 0."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{json.dumps({'call': what, **asked})}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program has ended with {self.process.wait(120)}"
        told = json.loads(line)
        error = told.get("error", {"status": 200, "kind": ""})
        return Told(told.get("result"), error["status"], error["kind"], told["pauses"])


@contextmanager
def running(language: str, folder: Path) -> Iterator[Runner]:
    """Install the client's package in `folder`, and run the program that uses it."""
    shutil.copytree(_PROGRAMS / language, folder, dirs_exist_ok=True)
    command = LANGUAGES[language](folder)
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)
    try:
        yield Runner(process)
    finally:
        process.communicate(timeout=120)


def _typescript(folder: Path) -> list[str]:
    """Install the tarball as a user does; what compiles the program lies beside it."""
    npm("install", "--offline", *built().glob("*.tgz"), folder=folder)
    (folder / "node_modules" / "@types").symlink_to(node_modules() / "@types")
    (folder / "node_modules" / "undici-types").symlink_to(node_modules() / "undici-types")
    run([node_modules() / ".bin" / "tsc", "-p", folder], folder)
    return [str(NODE / "node"), "runner.js"]


def _java(folder: Path) -> list[str]:
    """Compile with the jar and what its POM names."""
    libraries = jars("java", CLIENTS / "java" / "pom.xml") / "*"
    path = f"{built() / f'{NAME}.jar'}{os.pathsep}{libraries}"
    run(["javac", "-proc:none", "-cp", path, "-d", folder, folder / "Runner.java"], folder)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{path}{os.pathsep}{folder}", "Runner"]


def _go(folder: Path) -> list[str]:
    """Build with the module of the zip in the place of the one that is required."""
    with zipfile.ZipFile(built() / f"{NAME}-go.zip") as module:
        module.extractall(folder)
    (folder / f"{MODULE}@v{__version__}").rename(folder / "client")
    run(["go", "build", "-o", "runner", "."], folder)
    return [str(folder / "runner")]


LANGUAGES: Mapping[str, Callable[[Path], list[str]]] = {
    "typescript": _typescript,
    "java": _java,
    "go": _go,
}
