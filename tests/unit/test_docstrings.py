"""Names of classes and functions in docstrings are names of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<!`)`([A-Z]\w*[a-z]\w*|[A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`(?!`)")
"""In backticks: a class, or names with dots."""
OTHERS = {"None", "Upgrade", "realm_access"}
"""A keyword, a header of HTTP, and a claim of somebody's tokens."""


def names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            yield name
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.alias(name=name):
            yield from name.split(".")
        case ast.ImportFrom(module=str(module)):
            yield from module.split(".")
        case ast.Constant(value=str(text)) if " " not in text:
            yield from text.split(".")  # of a document, of an event, of a setting


def test_docstrings_name_what_is_there() -> None:
    paths = [path for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py")]
    nodes = {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}
    known = {path.stem for path in paths} | OTHERS
    known |= {name for found in nodes.values() for node in found for name in names(node)}
    unknown = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path, found in nodes.items()
        for node in found
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for name in NAME.findall(str(node.value.value))
        if not known.issuperset(name.split("."))
    ]
    assert not unknown
