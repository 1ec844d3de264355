"""Benchmarks of another commit and of this tree, in turns on the same machine.

    python -m tests.bench.compare BASE [--rounds N] [--bench "publish 300" …]

Each round runs every benchmark of BASE, checked out beside this tree, and then that of this tree.
Prints the medians of each figure that both have, and the ratio: this tree's over BASE's. CPU a unit
tells more than rates on a machine that others use. BASE runs in this environment's libraries.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
_USUAL = (
    "publish 300",
    "importing --packages 3000 --rounds 1 --nodes 1 --only sql",
    "journal_append 2000",
    "queue_fill 10000",
)
Figures = dict[tuple[str, str], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench", action="append", help="a module of tests.bench, and arguments")
    options = parser.parse_args()
    with checked_out(options.base) as base:
        found: dict[Path, Figures] = {tree: defaultdict(list) for tree in (base, ROOT)}
        for number in range(options.rounds):
            for bench in options.bench or _USUAL:
                for tree, figures in found.items():
                    sys.stderr.write(f"round {number + 1}, {bench}, {tree.name}\n")
                    for line in run(tree, bench.split()):
                        collect(line, figures)
        show(found[base], found[ROOT])


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Give the tree of a commit. Raises `SystemExit` when there is no such commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        add = ["git", "worktree", "add", "--detach", str(tree), commit]
        if subprocess.run(add, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"{commit} can't be checked out")
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def run(tree: Path, bench: Sequence[str]) -> list[dict[str, Any]]:
    """Run a benchmark of a tree with that tree's product, and return its lines."""
    command = [sys.executable, "-m", f"tests.bench.{bench[0]}", *bench[1:]]
    product = os.pathsep.join(str(tree / part) for part in ("shared", "services"))
    environment = {**os.environ, "PYTHONPATH": product}
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def collect(line: dict[str, Any], figures: Figures) -> None:
    """Note the value of a line, and what it says of CPU."""
    for key, value in line.items():
        if (key == "value" or "cpu" in key) and isinstance(value, int | float):
            figures[line["name"], line["unit"] if key == "value" else key].append(value)


def show(base: Figures, here: Figures) -> None:
    table = Table("figure", "unit", "base", "here", "ratio")
    for key in [key for key in here if key in base]:
        before, after = statistics.median(base[key]), statistics.median(here[key])
        ratio = f"{after / before:.2f}" if before else ""
        table.add_row(*key, f"{before:.4g}", f"{after:.4g}", ratio)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
