"""The size and shape of the product, as `make check` prints them.

Run as `python -m tests.harness.figures [--list]`; `--list` names the places. It fails when one of
the figures in `MOST` is above what is said there.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY, SERVICES = ROOT / "shared/packhorse", ROOT / "services/packhorse_services"
PUBLISHER = "packhorse_services.publisher"
LONG_FUNCTION, MANY_PARAMETERS = 30, 6
TWICE = "public class names used twice"
LONG = f"functions above {LONG_FUNCTION} lines"
MANY = f"functions above {MANY_PARAMETERS} parameters"
MOST = {TWICE: 10, LONG: 0, MANY: 0}
_NO_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def product() -> Iterator[Path]:
    """Yield the modules of library and services, without migrations and generated code."""
    for folder in (LIBRARY, SERVICES):
        for path in sorted(folder.rglob("*.py")):
            if not path.name.endswith("_pb2.py") and "migrations" not in path.parts:
                yield path


def code_lines(text: str, tree: ast.Module) -> int:
    """Count the lines that hold code: no blank ones, no comments, no docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = [one for one in tokens if tokenize.tok_name[one.type] not in _NO_CODE]
    lines = {n for one in code for n in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def parameters(function: _Function) -> int:
    """Count the parameters that a caller gives; `self` and `cls` are none."""
    args = function.args
    names = [one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def arrows(package: str, name: str, tree: ast.Module) -> set[tuple[str, str]]:
    """Return the imports between the direct parts (modules, folders) of a package."""
    if not name.startswith(f"{package}."):
        return set()
    own = name.removeprefix(f"{package}.").split(".")[0]
    targets = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            targets += [f"{node.module}.{alias.name}" for alias in node.names]
    inside = [one.removeprefix(f"{package}.") for one in targets if one.startswith(f"{package}.")]
    return {(own, part) for one in inside if (part := one.split(".")[0]) != own}


def figures() -> dict[str, int | list[str]]:
    """Return each figure, as a number or as the places that it counts."""
    lines = modules = 0
    classes: dict[str, list[str]] = defaultdict(list)
    between: set[tuple[str, str]] = set()
    long, many = [], []
    for path in product():
        text = path.read_text()
        tree = ast.parse(text)
        modules += 1
        lines += code_lines(text, tree)
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
        between |= arrows(PUBLISHER, name, tree)
        for node in ast.walk(tree):
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(place)
            elif isinstance(node, _Function):
                if (length := (node.end_lineno or 0) - node.lineno + 1) > LONG_FUNCTION:
                    long.append(f"{place} {node.name}: {length}")
                if parameters(node) > MANY_PARAMETERS:
                    many.append(f"{place} {node.name}: {parameters(node)}")
    return {
        "code lines": lines,
        "modules": modules,
        TWICE: [f"{one}: {' '.join(at)}" for one, at in sorted(classes.items()) if len(at) > 1],
        "imports between parts of the publisher": [f"{a} -> {b}" for a, b in sorted(between)],
        LONG: long,
        MANY: many,
    }


def main() -> int:
    """Print the figures; return 1 when one of them is too high."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="name the places as well")
    listed = parser.parse_args().list
    found = figures()
    for name, value in found.items():
        print(f"{name}: {_size(value)}")
        for place in value if listed and not isinstance(value, int) else ():
            print(f"  {place}")
    too_high = [name for name, most in MOST.items() if _size(found[name]) > most]
    for name in too_high:
        print(f"{name}: {MOST[name]} at most, see --list", file=sys.stderr)
    return 1 if too_high else 0


def _size(value: int | list[str]) -> int:
    return value if isinstance(value, int) else len(value)


if __name__ == "__main__":
    sys.exit(main())
