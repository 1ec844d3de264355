"""Writes the tables and the plot of docs/benchmarks.md from the lines of a run of `make bench`.

    python -m tests.bench.page [LINES]

LINES, a file as `BENCH_LINES` makes it, replaces docs/benchmarks.jsonl first. Each table stands in
the page between two comments, of which the first names it; what stands around them is written by
hand.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.targets import TARGETS

DOCS = Path(__file__).parents[2] / "docs"
PAGE, LINES, PLOT = (
    DOCS / "benchmarks.md",
    DOCS / "benchmarks.jsonl",
    DOCS / "pictures/importing.svg",
)
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.S)
_OWN = ("bench", "name", "value", "unit", "anchor", "anchor_value", "ratio", "load", "sessions")
_UNITS = {"us": "µs", "ms": "ms", "s": "s", "mb": "MB", "percent": "%"}
_STYLE = re.compile(r"<style>.*?</style>", re.S)
_WIDTH, _NOTE = 530, "CPU a package: the program, then Postgres beside it"
_BARS = {
    "kafka": "packhorse, Kafka",
    "sql": "packhorse, SQL",
    "debezium": "Debezium sink",
    "replication": "replication",
    "loop": "a user's loop",
    "copy": "COPY",
}

Line = dict[str, Any]


def main() -> None:
    if sys.argv[1:]:
        shutil.copyfile(sys.argv[1], LINES)
    lines = read()
    PAGE.write_text(filled(PAGE.read_text(), lines))
    PLOT.write_text(drawing(lines))


def read() -> list[Line]:
    """Return the lines of the run that the page shows."""
    return [json.loads(line) for line in LINES.read_text().splitlines()]


def filled(page: str, lines: Sequence[Line]) -> str:
    """Return the page with its tables made of `lines`."""

    def table(found: re.Match[str]) -> str:
        before, name, after = found.groups()
        rows = _targets(lines) if name == "targets" else _figures(name, lines)
        return f"{before}{''.join(row + chr(10) for row in rows)}{after}"

    return _TABLE.sub(table, page)


def tables(page: str) -> list[str]:
    """Return the names of the tables in a page."""
    return [name for _, name, _ in _TABLE.findall(page)]


def _targets(lines: Sequence[Line]) -> Iterator[str]:
    yield "| what | wanted | measured | |"
    yield "|---|---|---|---|"
    for target in TARGETS:
        measured = target.measured(lines)
        verdict = "met" if target.met(measured) else f"**missed**: {target.because()}"
        yield f"| {target.what} | {target.limit} | {_number(measured)} | {verdict} |"


def _figures(bench: str, lines: Sequence[Line]) -> Iterator[str]:
    yield f"`python -m tests.bench.{bench}`:"
    yield ""
    yield "| figure | measured | beside | more |"
    yield "|---|---|---|---|"
    for line in lines:
        if line["bench"] != bench:
            continue
        beside = ""
        if "anchor" in line:
            ratio, value = _number(line["ratio"]), _number(line["anchor_value"])
            beside = f"{ratio} × {_words(line['anchor'])} ({value})"
        more = ", ".join(_more(key, value) for key, value in line.items() if key not in _OWN)
        measured = f"{_number(line['value'])} {line['unit']}"
        yield f"| {_words(line['name'])} | {measured} | {beside} | {more} |"


def _more(key: str, value: float) -> str:
    words, _, unit = key.rpartition("_")
    if unit in _UNITS:
        return f"{_words(words)} {_number(value)} {_UNITS[unit]}"
    return f"{_words(key)} {_number(value)}"


def _words(name: str) -> str:
    return name.replace("_", " ").replace("cpu", "CPU").replace("|", "\\|")


def _number(value: float) -> str:
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 100 or short == int(short) else f"{short:g}"


def drawing(lines: Sequence[Line]) -> str:
    """Return a picture of the CPU that each way of importing takes for a package."""
    found = {line["name"]: line for line in lines if line["bench"] == "importing"}
    shown = [(label, found[f"{name}_1"]) for name, label in _BARS.items() if f"{name}_1" in found]
    scale = _WIDTH / max(line["cpu_us"] for _, line in shown)
    rows = [_bar(30 * n + 10, label, line, scale) for n, (label, line) in enumerate(shown)]
    style = _STYLE.search((PLOT.with_name("jobs.svg")).read_text())
    assert style is not None
    height = 30 * len(rows) + 40
    note = f'<text class="small" x="150" y="{height - 12}">{_NOTE}</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}">'
    return "\n".join((head, style[0], *rows, note, "</svg>\n"))


def _bar(y: int, label: str, line: Line, scale: float) -> str:
    program, postgres = (round(line[part] * scale) for part in ("program_us", "postgres_us"))
    return (
        f'<text x="140" y="{y + 16}" text-anchor="end">{label}</text>'
        f'<rect class="strong" x="150" y="{y}" width="{program}" height="22"/>'
        f'<rect class="box" x="{150 + program}" y="{y}" width="{postgres}" height="22"/>'
        f'<text class="small" x="{158 + program + postgres}" y="{y + 16}">'
        f"{_number(line['cpu_us'])} µs</text>"
    )


if __name__ == "__main__":
    main()
