"""What a run collects is compiled once: each worker compiles its share before any collects.

All workers collect all tests, in one order and at one time. Each would rewrite the assertions of
every file, and compile every module, just before another one has written the result.
"""

import compileall
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key

_MODULES = ("shared/packhorse", "services/packhorse_services", "tests/harness")


def compile_share(config: pytest.Config) -> None:
    """Write the bytecode of this worker's share of what is to be collected, where it is missing."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count == 1 or sys.dont_write_bytecode or config.getvalue("assertmode") != "rewrite":
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    modules = [one for name in _MODULES for one in (config.rootpath / name).rglob("*.py")]
    for file in sorted(modules)[number::count]:
        compileall.compile_file(file, quiet=2)
    for file in sorted(_collected(config))[number::count]:
        _rewrite(file, config)


def _collected(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        folder = config.rootpath / argument.partition("::")[0]
        for pattern in ("conftest.py", "test_*.py"):
            yield from folder.rglob(pattern) if folder.is_dir() else ()


def _rewrite(file: Path, config: pytest.Config) -> None:
    """Do what pytest does at an import, without importing."""
    folder = rewrite.get_cache_dir(file)
    written = folder / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(file, written):
        return
    try:
        source_hash, code = rewrite._rewrite_test(file, config)
    except SyntaxError:
        return  # its collection says so
    if rewrite.try_makedirs(folder):
        rewrite._write_pyc(config.stash[assertstate_key], code, source_hash, written)
