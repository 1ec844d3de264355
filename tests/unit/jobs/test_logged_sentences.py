"""A warning about jobs says in its sentence whom it is about: `extra` is for machines."""

import ast
from collections.abc import Iterator
from pathlib import Path

import packhorse.jobs

_TROUBLE = {"warning", "error", "exception"}


def _troubles(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _TROUBLE
            and ast.unparse(node.func.value) == "logger"
        ):
            yield node


def test_a_warning_says_in_its_sentence_whom_it_is_about() -> None:
    seen, silent = 0, []
    for path in sorted(Path(packhorse.jobs.__file__).parent.rglob("*.py")):
        for call in _troubles(ast.parse(path.read_text())):
            named = [word.arg for word in call.keywords]
            seen += "extra" in named
            if "extra" in named and len(call.args) < 2:
                silent.append(f"{path.name}:{call.lineno}")
    assert seen >= 8
    assert silent == []
