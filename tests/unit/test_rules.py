"""The rules of docs/rules.md, the citations of them, and the tests that hold them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_DEFINED = set(re.findall(r"^- \*\*(R\d+)\*\*", (_ROOT / "docs/rules.md").read_text(), re.M))


def _files(*patterns: str) -> Iterator[Path]:
    for folder in ("shared", "services", "tests", "docs", "helm", "proto"):
        for pattern in patterns:
            yield from (_ROOT / folder).rglob(pattern)


def _tests_of_promises(path: Path) -> Iterator[str]:
    """The names of a file's tests without those that `make test` may leave out."""
    text = path.read_text()
    if "def test_r" not in text:
        return
    if "mark.proof" not in text and "mark.depth" not in text:  # to parse a file takes much longer
        yield from re.findall(r"^(?:async )?def (test_r\w+)", text, re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(ast.unparse(one) for one in node.decorator_list)
            if "mark.proof" not in marks and "mark.depth" not in marks:
                yield node.name


def test_every_rule_that_is_cited_is_defined() -> None:
    cited = {
        (rule, str(path.relative_to(_ROOT)))
        for path in _files("*.py", "*.md", "*.proto", "*.yaml")
        for rule in re.findall(r"\bR\d{1,2}\b", path.read_text())
    }
    assert [(rule, where) for rule, where in sorted(cited) if rule not in _DEFINED] == []


_FOREIGN = re.compile(  # numbers of catalogues that are no part of the repository
    r"\b(?:TI|TA|EV|JA|JB|JQ|JS|ST|DB|LIM|BUG)-\d+\b|\bseed 00\d\b|\breliability [A-Z]\d|"
    r"(?<= )\((?:R\d+, )*[A-QT-Z]\d{1,2}(?:, [A-Z]+-?\d+)*\)|"
    r"def test_(?!r\d|s3_)(?:[a-z]\d|(?:ti|ta|ev|j[abqs]|st|db|lim|bug)_?\d)"
)


def test_nothing_cites_a_number_that_no_file_defines() -> None:
    cited = [
        f"{path.relative_to(_ROOT)}: {found.group()}"
        for path in _files("*.py", "*.md", "*.proto", "*.yaml")
        if path != Path(__file__) and not path.name.endswith("_pb2.py")
        for found in _FOREIGN.finditer(path.read_text())
        if not re.fullmatch(r"\((?:R\d+, )*R\d+\)", found.group())
    ]
    assert cited == []


def test_every_rule_is_held_by_a_test_that_is_named_after_it() -> None:
    named = {
        f"R{number}"
        for path in _files("test_*.py")
        for number in re.findall(r"\btest_r(\d+)_", " ".join(_tests_of_promises(path)))
    }
    assert named >= _DEFINED, f"held by no test: {sorted(_DEFINED - named)}"
    assert named <= _DEFINED, f"not defined: {sorted(named - _DEFINED)}"
