"""Build the site: `python -m docs.site.build [FOLDER]`; needs no network, and neither do its pages.

The pages of the repository are put together in a folder with those that are made here, from the
OpenAPI and AsyncAPI documents and from the library's docstrings. Sphinx builds that folder, and any
warning, such as a link to a heading that is not there, fails.
"""

import argparse
import gc
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml
from sphinx.cmd.build import main as sphinx

import packhorse
from docs.site.event_page import event_page
from docs.site.http_pages import http_page
from docs.site.library_page import library_sections
from docs.site.pages import CLIENTS, DOWNLOADS, ROOT, as_site_page, placed

HERE = Path(__file__).parent
DEFAULT = ROOT / "build" / "site"
_CHAPTERS = {
    "Begin": ["start.md", "concepts.md", "guide/index.md", "recipes.md"],
    "Run it": [
        *(
            "deployment.md",
            "operations/index.md",
            "console.md",
            "security.md",
            "metrics.md",
            "tables.md",
        ),
        *("benchmarks.md", "scaling.md"),
    ],
    "Reference": ["api.md", "library.md", "glossary.md", "rules.md"],
    "The project": [
        *("architecture.md", "services.md", "adr/index.md", "contributing.md", "changelog.md"),
    ],
}


_ALONE = "---\norphan: true\n---\n\n"
"""Before a decision: its index leads to it, and no page's menu lists a hundred of them."""


def put_together(folder: Path) -> None:
    """Write every page of the site, as Markdown, into an empty folder."""
    pages = placed()
    for source, place in pages.items():
        text = as_site_page(source, (ROOT / source).read_text(), pages)
        _write(folder / place, _ALONE + text if place.startswith("adr/0") else text)
    for one in DOWNLOADS:
        shutil.copy(ROOT / one, folder)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    services = sorted((ROOT / "openapi").glob("*.yaml"))
    for path in services:
        page = http_page(path.stem, yaml.load(path.read_text(), loader))  # noqa: S506 - a safe one
        _write(folder / "api" / f"{path.stem}.md", page)
    events = yaml.safe_load((ROOT / "asyncapi" / "events.yaml").read_text())
    _write(folder / "api" / "events.md", event_page(events))
    _append(folder / "library.md", library_sections(packhorse))
    _add_contents(folder, [f"api/{path.stem}.md" for path in services])


def _add_contents(folder: Path, services: list[str]) -> None:
    """Tell Sphinx which page belongs to which, and in what order."""
    for caption, pages in _CHAPTERS.items():
        _append(folder / "index.md", _tree(pages, caption))
    for start in ("guide/index.md", "operations/index.md"):
        others = [page.name for page in (folder / start).parent.glob("*.md")]
        text = (folder / start).read_text()
        named = (name for name in others if name != "index.md")
        _append(folder / start, _tree(sorted(named, key=lambda name: text.index(f"({name}"))))
    _append(folder / "guide/clients.md", _tree(f"/clients/{one}.md" for one in CLIENTS))
    _append(folder / "api.md", _tree([*services, "api/events.md"]))


def _tree(pages: Iterable[str], caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def build(target: Path) -> int:
    """Build the site into `target`, anew; return Sphinx's exit code, 0 without any warning."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as together:
        folder = Path(together)
        put_together(folder / "pages")
        options = ["-c", str(HERE), "-d", str(folder / "doctrees"), "-W", "--keep-going", "-q"]
        return sphinx([*options, "-b", "html", str(folder / "pages"), str(target)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation as static files.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    built = parser.parse_args().folder
    gc.disable()  # documents are cycles that stay: looking through them takes a fifth of the time
    failed = build(built)
    print(f"{built / 'index.html'}" if not failed else "the pages have faults", file=sys.stderr)
    sys.exit(failed)
