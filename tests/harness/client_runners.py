"""Programs in other languages that use the clients as installed packages, one call a line."""

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packhorse import __version__
from tests.harness.client_packages import MODULE, NAME, built
from tests.harness.client_tools import CLIENTS, NODE, jars, made_once, node_modules, npm, run

_PROGRAMS = Path(__file__).parents[1] / "clients"


@dataclass
class Told:
    """What came of a call: its result, or how it was refused; and how long it has paused.

    `said` is the error in the words of the client.
    """

    result: Any
    status: int
    kind: str
    pauses: list[float]
    said: str = ""


@dataclass
class Runner:
    """A program that makes one call after the other."""

    process: "subprocess.Popen[str]"
    temporary: Path

    def call(self, what: str, /, **asked: Any) -> Told:
        """Make a call and return what came of it; a call without an answer has the status 0."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{json.dumps({'call': what, **asked})}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program has ended with {self.process.wait(120)}"
        told = json.loads(line)
        error = told.get("error", {"status": 200, "kind": "", "said": ""})
        how = error["status"], error["kind"], told["pauses"], error["said"]
        return Told(told.get("result"), *how)


@contextmanager
def running(language: str) -> Iterator[Runner]:
    """Run the program that uses the client's package as it is installed."""
    folder = installed(language)
    _, command = LANGUAGES[language]
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as temporary:
        process = subprocess.Popen(
            command(folder, temporary),
            cwd=folder,
            env={**os.environ, "TMPDIR": temporary},
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        try:
            yield Runner(process, Path(temporary))
        finally:
            process.communicate(timeout=120)


def installed(language: str) -> Path:
    """Return a folder with the program and the client's package, made by whoever comes first."""
    program = _PROGRAMS / language
    install, _ = LANGUAGES[language]

    def make(home: Path) -> None:
        shutil.copytree(program, home)
        install(home)

    sources = [Path(__file__), *sorted(program.iterdir()), *sorted(built().iterdir())]
    return made_once(f"client-runner-{language}", sources, make)


def _typescript(folder: Path) -> None:
    """Install the tarball as a user does; what compiles the program lies beside it."""
    npm("install", "--offline", *built().glob("*.tgz"), folder=folder)
    (folder / "node_modules" / "@types").symlink_to(node_modules() / "@types")
    (folder / "node_modules" / "undici-types").symlink_to(node_modules() / "undici-types")
    run([node_modules() / ".bin" / "tsc", "-p", folder], folder)


def _java_path(folder: Path) -> str:
    """The jar, what its POM names, and the program."""
    libraries = jars("java", CLIENTS / "java" / "pom.xml") / "*"
    return os.pathsep.join(str(path) for path in (built() / f"{NAME}.jar", libraries, folder))


def _java(folder: Path) -> None:
    """Compile with the jar and what its POM names."""
    path = ("-cp", _java_path(folder))
    run(["javac", "-proc:none", *path, "-d", folder, folder / "Runner.java"], folder)


def _go(folder: Path) -> None:
    """Build with the module of the zip in the place of the one that is required."""
    with zipfile.ZipFile(built() / f"{NAME}-go.zip") as module:
        module.extractall(folder)
    (folder / f"{MODULE}@v{__version__}").rename(folder / "client")
    run(["go", "build", "-o", "runner", "."], folder)


def _java_command(folder: Path, temporary: str) -> list[str]:
    """Run it in a charset that says nothing but ASCII, as a container's may."""
    settings = (f"-Djava.io.tmpdir={temporary}", "-Dfile.encoding=US-ASCII")
    return ["java", "-XX:TieredStopAtLevel=1", *settings, "-cp", _java_path(folder), "Runner"]


LANGUAGES: Mapping[str, tuple[Callable[[Path], None], Callable[[Path, str], list[str]]]] = {
    "typescript": (_typescript, lambda *_: [str(NODE / "node"), "--expose-gc", "runner.js"]),
    "java": (_java, _java_command),
    "go": (_go, lambda folder, _: [str(folder / "runner")]),
}
"""How the package of a language is installed and the program compiled, and what runs that."""
