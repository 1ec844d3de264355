"""What the map of the architecture and the index of decisions name is what is there."""

import re
from importlib import import_module
from pathlib import Path

from packhorse.db.metadata import METADATA

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "shared" / "packhorse"
DECISIONS = ROOT / "docs" / "adr"
SHORT_SINCE = 35
"""Decisions are at most `MOST_WORDS` long from this number on."""
MOST_WORDS = 400
MOST_TERMS = 70

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PROSE = re.sub(r"^```.*?^```", "", ARCHITECTURE, flags=re.M | re.S)
NAMED = set(re.findall(r"`([^`\s(]*)[^`]*`", PROSE))


def test_the_architecture_names_every_layer_of_the_library() -> None:
    layers = {p.parent.name for p in LIBRARY.glob("*/__init__.py")}
    layers |= {p.stem for p in LIBRARY.glob("*.py") if p.stem != "__init__"}
    assert not layers - NAMED


def test_the_architecture_names_every_schema_and_table() -> None:
    for source in ("shared", "services"):
        for path in (ROOT / source).rglob("tables.py"):
            import_module(".".join(path.relative_to(ROOT / source).with_suffix("").parts))
    tables = METADATA.sorted_tables
    assert not {table.schema for table in tables} - NAMED
    assert not {table.name for table in tables} - NAMED


def test_the_architecture_names_every_migration() -> None:
    versions = (LIBRARY / "db" / "migrations" / "versions").glob("[0-9]*.py")
    assert not {path.name[:4] for path in versions} - NAMED


def decisions() -> dict[str, Path]:
    return {path.name[:4]: path for path in sorted(DECISIONS.glob("[0-9]*.md"))}


def test_the_index_lists_every_decision_once_by_its_title() -> None:
    listed = re.findall(
        r"^- \[(\d{4})\]\((\S+)\) (.+)$", (DECISIONS / "README.md").read_text(), re.M
    )
    wanted = {
        number: (path.name, path.read_text().partition("\n")[0].removeprefix(f"# {number} · "))
        for number, path in decisions().items()
    }
    found = {n: (file, re.sub(r" \(superseded .*\)$", "", title)) for n, file, title in listed}
    assert found == wanted
    assert len(listed) == len(wanted)


def test_each_decision_says_its_status() -> None:
    first_lines = {number: path.read_text().split("\n")[2] for number, path in decisions().items()}
    assert not {n: line for n, line in first_lines.items() if not line.startswith("Status: ")}


def test_what_a_decision_supersedes_says_so_itself() -> None:
    for number, path in decisions().items():
        status = " ".join(path.read_text().split("\n\n")[1].split())
        for earlier in re.findall(r"ADR (\d{4})", status.partition("supersedes ")[2]):
            assert f"[{number}](" in decisions()[earlier].read_text().split("\n\n")[1], earlier


def test_new_decisions_are_short() -> None:
    words = {n: len(path.read_text().split()) for n, path in decisions().items()}
    assert not {
        n: count for n, count in words.items() if int(n) >= SHORT_SINCE and count > MOST_WORDS
    }


def test_only_decisions_that_are_there_are_cited() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts += [
        p for folder in ("shared", "services", "tests") for p in (ROOT / folder).rglob("*.py")
    ]
    cited = {(p.name, n) for p in texts for n in re.findall(r"ADR (\d{4})", p.read_text())}
    assert not {(name, number) for name, number in cited if number not in decisions()}


def test_the_glossary_is_short_and_explains_each_term_once() -> None:
    rows = re.findall(r"^\| (?!word \|)([^-].*?) \|", (ROOT / "docs/glossary.md").read_text(), re.M)
    assert rows
    assert len(rows) <= MOST_TERMS
    assert len(rows) == len(set(rows))
