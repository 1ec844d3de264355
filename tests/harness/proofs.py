"""Which proofs a change asks for: a proof shows that a checker catches a build that is broken.

They are many and slow, and say nothing new while neither the checker nor what it checks has
changed. `make test` runs those whose test, harness or checked module differs from the main branch;
`make proofs` and `make chaos` run all of them.
"""

import ast
import subprocess
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCES = {"packhorse": "shared", "packhorse_services": "services", "tests": "."}
_BRANCHES = ("main", "origin/main")


def is_asked_for(test: Path) -> bool:
    """Return whether a test or what it imports differs from the main branch.

    True as well where git does not know.
    """
    changed = _changed()
    if not changed:
        return changed is None
    return not changed.isdisjoint(read_by(test))


@cache
def _changed() -> frozenset[Path] | None:
    for branch in _BRANCHES:
        base = _git("merge-base", "HEAD", branch)
        if base is not None:
            differing = _git("diff", "--name-only", base.strip())
            new = _git("ls-files", "--others", "--exclude-standard")
            names = f"{differing}\n{new}".split()
            return frozenset(_ROOT / name for name in names if name.endswith(".py"))
    return None


@cache
def read_by(test: Path) -> frozenset[Path]:
    """Return the test's file, those that it imports, and those that its harness imports."""
    found, waiting = {test}, [test]
    while waiting:
        imported = {_file(name) for name in _imported(waiting.pop())}
        fresh = {file for file in imported if file is not None and file not in found}
        found |= fresh
        waiting += [file for file in fresh if _is_harness(file)]
    return frozenset(found)


@cache
def _imported(module: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and str(node.value).startswith("packhorse"):
            names |= _prefixes(str(node.value))  # what a proof breaks by its name
    return frozenset(names)


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(2, len(parts))}


def _file(name: str) -> Path | None:
    source = _SOURCES.get(name.partition(".")[0])
    file = _ROOT / (source or "") / f"{name.replace('.', '/')}.py"
    return file if source and file.is_file() else None


def _is_harness(file: Path) -> bool:
    return file.is_relative_to(_ROOT / "tests")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
