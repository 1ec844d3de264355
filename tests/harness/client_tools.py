"""What builds the clients: generators, compilers and libraries, in folders of their own.

They are made the first time and kept beside the other tools of the tests; a change of what they
are made from makes new ones.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.harness.s3 import TOOLS

CLIENTS = Path(__file__).parents[2] / "clients"
NODE = Path(sys.executable).parent
"""Where Node.js is: the wheel's, which is new enough for the generator."""


def generator() -> Path:
    """Return the folder with the jars of openapi-generator."""
    return jars("openapi-generator", CLIENTS / "openapi-generator" / "pom.xml")


def jars(name: str, pom: Path) -> Path:
    """Return the folder with the jars that a POM names."""

    def fetch(home: Path) -> None:
        target = f"-DoutputDirectory={home}"
        run(["mvn", "-q", "-f", pom, "dependency:copy-dependencies", target], home.parent)

    return made_once(f"client-{name}", [pom], fetch)


def node_modules(name: str = "client-typescript", pinned: Path = CLIENTS / "typescript") -> Path:
    """Return the folder `node_modules` of what is pinned: of the TypeScript client by default."""
    pins = [pinned / file for file in ("package.json", "package-lock.json")]

    def install(home: Path) -> None:
        home.mkdir()
        for pin in pins:
            shutil.copy(pin, home)
        npm("ci", "--ignore-scripts", folder=home)

    return made_once(name, pins, install) / "node_modules"


def npm(command: str, *arguments: str | Path, folder: Path) -> str:
    """Run npm quietly in a folder; return its output."""
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    return run([NODE / "npm", command, *quiet, *arguments], folder)


def made_once(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """Return a folder that is made from these files, by whoever comes first; others wait.

    It is moved into its place when it is complete, so nothing in it may know where it was made.
    """
    told = hashlib.sha256()
    for source in sources:
        told.update(hashlib.sha256(source.read_bytes()).digest())
    home = TOOLS / f"{name}-{told.hexdigest()[:16]}"
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix=home.name, dir=TOOLS) as folder:
                make(Path(folder) / "home")
                (Path(folder) / "home").rename(home)
    return home


def run(command: Iterable[str | Path], folder: Path) -> str:
    """Run a command in a folder and return its output; fail with what it says."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stdout}{done.stderr}")
    return done.stdout
