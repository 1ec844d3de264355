"""The commands in the README and the guides work, in the order of the pages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from packhorse_services.cli.stack.ports import free_ports
from tests.harness.command_line import Up, data_folder
from tests.harness.pages import DOCS, ROOT, read_together
from tests.harness.shell import forked_commands

pytestmark = pytest.mark.timeout(1800)

_FILE = re.compile(r"^```python (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DOCUMENTED_PORTS = {
    8080: "publisher",
    8081: "content",
    8082: "cleanup",
    8086: "topology",
    8087: "jobs",
}


_PAGES = ["README.md", "docs/start.md", "docs/guide/README.md", "docs/operations/README.md"]
_JOINING = re.compile(r"\b81\d\d\b")
"""Ports of the programs that a page lets join the stack."""


@pytest.mark.parametrize("page", _PAGES)
def test_the_commands_of_a_page_work(up: Up, tmp_path: Path, page: str) -> None:
    with forked_commands() as commands:
        run_page(up, tmp_path, ROOT / page, commands)


def test_the_recipes_work(tmp_path: Path) -> None:
    with data_folder() as folder:
        stack = Up(folder, "--subscribers", "2")
        stack.start()
        try:
            stack.ready()
            with forked_commands() as commands:
                run_page(stack, tmp_path, ROOT / "docs/recipes.md", commands)
        finally:
            stack.stop()


def test_every_page_with_commands_is_run() -> None:
    run = "".join(read_together(ROOT / page) for page in [*_PAGES, "docs/recipes.md"])
    texts = [page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")]]
    assert not [text for text in texts if _BLOCK.search(text) and text not in run]


def run_page(up: Up, folder: Path, page: Path, commands: Path) -> None:
    """Run a page's commands in a folder that has its files, with the ports that are there.

    `commands` is a folder whose programs go before those that are installed.
    """
    stack = json.loads(up.output.read_text())
    text = read_together(page)
    script = "\n".join(["trap 'kill $(jobs -p) 2> /dev/null || true' EXIT", *_commands(text)])
    for port, program in _DOCUMENTED_PORTS.items():
        script = script.replace(f"http://127.0.0.1:{port}", stack[program])
    script = script.replace("http://127.0.0.1:8083", stack["subscribers"]["sub1"])
    ports = sorted(set(_JOINING.findall(script)))
    joining = dict(zip(ports, free_ports(len(ports)), strict=True))
    script = _JOINING.sub(lambda found: str(joining[found[0]]), script)
    for name, content in _FILE.findall(text):
        (folder / name).write_text(content)
    (folder / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
    done = subprocess.run(
        ["bash", "-x", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=_environment(up, folder, commands),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{done.stdout[-1000:]}"


def _environment(up: Up, folder: Path, commands: Path) -> dict[str, str]:
    path = ":".join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"PATH": path, "PACKHORSE_DATA": str(up.data), "CURL_HOME": str(folder)}
    return {**os.environ, **ours}


def _commands(text: str) -> list[str]:
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    assert lines, "the page has no examples"
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]
