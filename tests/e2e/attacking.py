"""Runs of schemathesis, forked from a process that has imported it: it takes 1.5 s to start."""

import multiprocessing
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "requests",
        "schemathesis.cli.commands.run.executor",
        "schemathesis.engine.run.unit",
        "schemathesis.openapi.loaders",
        "schemathesis.specs.openapi.extra_data_source",
        "schemathesis.specs.openapi.schemas",
    ]
)


def attack(arguments: Sequence[object], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments in this folder; what it says on stderr is in `stdout`, too."""
    words = [str(one) for one in arguments]
    said = folder / "said.txt"
    running = _FORKS.Process(target=_run, args=(words, folder, said))
    running.start()
    try:
        running.join(1500)
        assert running.exitcode is not None, f"schemathesis goes on and on:\n{said.read_text()}"
    finally:
        running.kill()
        running.join()
    return subprocess.CompletedProcess(words, running.exitcode, said.read_text(), "")


def _run(words: list[str], folder: Path, said: Path) -> None:
    from schemathesis.cli import schemathesis

    os.chdir(folder)
    with said.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    schemathesis(words)
