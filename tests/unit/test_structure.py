"""The house rules that no tool holds: sizes, names, and nothing of anybody's machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

THIS = Path(__file__)
ROOT = THIS.parents[2]
SOURCES = ("shared", "services", "tests")
OTHER_FOLDERS = ("helm", "openapi", "proto", ".ci")
MOST_LINES = 300
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "misc"}
TEXT = {".py", ".pyi", ".proto", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ".sql", ".tpl"}

ANY_HOST = re.compile(r"https?://([A-Za-z0-9.-]+\.[A-Za-z]{2,})\b")
REGISTRY = re.compile(
    r"\b(pypi\.org|pythonhosted\.org|npmjs\.\w+|docker\.io|ghcr\.io|quay\.io|gcr\.io|golang\.org"
    r"|maven\.org|crates\.io)\b"
)
SCHEMA_NAMES = {  # names, never fetched
    *("json-schema.org", "maven.apache.org", "www.w3.org", "java.sun.com", "www.jcp.org"),
    *("sling.apache.org", "jackrabbit.apache.org", "www.day.com", "www.adobe.com"),
    *("purl.org", "ns.adobe.com", "iptc.org"),
}
RESERVED_HOST = re.compile(r"(^|\.)(example|invalid|test|localhost|example\.(com|org|net))$")
HELD = re.compile(
    r"\.(cursor|transaction|pipeline)\(|with (.* )?(bookkeeping|writing|reading|within)\("
)
ANY_HOME = re.compile(r"(?<![\w.])/(work|root|home|Users)/")


def modules() -> Iterator[Path]:
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            if not path.name.endswith("_pb2.py"):
                yield path


def texts() -> Iterator[tuple[Path, str]]:
    """The files that programs read; prose may link to wherever it wants."""
    inside = (path for f in (*SOURCES, *OTHER_FOLDERS) for path in (ROOT / f).rglob("*"))
    for path in (*ROOT.glob("*"), *inside):
        named = path.suffix in TEXT or path.name in ("Makefile", "Dockerfile", "run")
        if path.is_file() and named and path != Path(__file__):
            yield path, path.read_text()


def test_modules_are_short() -> None:
    long = {p.relative_to(ROOT): n for p in modules() if (n := lines(p)) > MOST_LINES}
    assert not long


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_modules_and_folders_say_what_they_hold() -> None:
    words = {p: set(p.relative_to(ROOT).with_suffix("").parts) for p in modules()}
    assert not {path: found for path, names in words.items() if (found := names & EMPTY_NAMES)}


def test_nothing_names_a_host_of_the_internet() -> None:
    found = {(p, host) for p, text in texts() for host in ANY_HOST.findall(text)}
    foreign = {
        (path.relative_to(ROOT), host)
        for path, host in found
        if host not in SCHEMA_NAMES and not RESERVED_HOST.search(host)
    }
    assert not foreign


def test_nothing_names_a_registry() -> None:
    found = {(p.relative_to(ROOT), m.group()) for p, t in texts() for m in REGISTRY.finditer(t)}
    assert not found


def test_nothing_names_a_folder_of_somebodys_machine() -> None:
    found = {(p.relative_to(ROOT), m.group()) for p, t in texts() for m in ANY_HOME.finditer(t)}
    assert not found


def test_no_test_imports_another() -> None:
    """What two of them need is in `tests/harness`, a `conftest.py` or a module beside them."""
    imported = re.compile(r"^\s*from (\S*\.test_\w+) import", re.MULTILINE)
    found = {
        path.relative_to(ROOT): names
        for path in (ROOT / "tests").rglob("*.py")
        if (names := imported.findall(path.read_text()))
    }
    assert not found


def test_what_one_test_alone_needs_is_not_in_the_harness() -> None:
    """It is in the test's file, or in a module beside it where it is too large for that."""
    named = re.compile(r"tests\.harness[.\w]*(?: import (\w[\w, ]*))?")
    users: dict[str, set[Path]] = {}
    for path in (*(ROOT / "tests").rglob("*.py"), ROOT / "Makefile"):
        for match in named.finditer(path.read_text()):
            module, *_ = match.group().split()
            for name in ("", *re.findall(r"\w+", match.group(1) or "")):
                users.setdefault(f"{module}.{name}".rstrip("."), set()).add(path)
    alone = {
        module
        for module, [*who] in users.items()
        if len(who) == 1 and who[0].name.startswith("test_") and _is_module(module)
    }
    assert not alone


def _is_module(name: str) -> bool:
    return (ROOT / f"{name.replace('.', '/')}.py").is_file()


def test_no_generator_holds_a_cursor_or_a_transaction() -> None:
    """One that is abandoned is ended by the collector, inside any statement of the connection.

    `packhorse.db.rows.stream_rows` reads a large result without that.
    """
    found = [
        f"{path.relative_to(ROOT)}:{held.lineno}"
        for folder in ("shared", "services")
        for path in (ROOT / folder).rglob("*.py")
        for function in functions(path)
        for held in inside(function)
        if isinstance(held, ast.With) and yields(held) and holds(held)
    ]
    assert not found


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Those that are no context managers: what drives one of these ends it in time."""
    text = path.read_text()
    if "yield" not in text or not HELD.search(text):  # to parse it takes longer
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            decorators = map(ast.unparse, node.decorator_list)
            if not any("contextmanager" in decorator for decorator in decorators):
                yield node


def inside(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from inside(child)


def yields(held: ast.With) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside(held))


def holds(held: ast.With) -> bool:
    opened = " ".join(ast.unparse(item.context_expr) for item in held.items)
    return bool(HELD.search(opened))
