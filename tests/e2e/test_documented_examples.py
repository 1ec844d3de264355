"""The commands in the README and the guides work, in the order of the pages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.command_line import Up
from tests.harness.pages import ROOT, read_together

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


@pytest.mark.parametrize("page", ["README.md", "docs/guide/README.md", "docs/operations/README.md"])
def test_the_commands_of_a_page_work(up: Up, tmp_path: Path, page: str) -> None:
    stack = json.loads(up.output.read_text())
    text = read_together(ROOT / page)
    script = "\n".join(_commands(text))
    for port, program in _DOCUMENTED_PORTS.items():
        script = script.replace(f"http://127.0.0.1:{port}", stack[program])
    script = script.replace("http://127.0.0.1:8083", stack["subscribers"]["sub1"])
    for name, content in _FILE.findall(text):
        (tmp_path / name).write_text(content)
    (tmp_path / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-x", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": path,
            "PACKHORSE_DATA": str(up.data),
            "CURL_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{done.stdout[-1000:]}"


def _commands(text: str) -> list[str]:
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    assert lines, "the page has no examples"
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]
