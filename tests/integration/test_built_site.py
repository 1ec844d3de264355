"""The site that `make docs` builds: its links lead somewhere, and it asks for nothing outside."""

import functools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import packhorse
from tests.harness.pages import DOCS, ROOT
from tests.harness.yaml_text import parsed

_METHODS = {"get", "put", "post", "patch", "delete"}
_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "srcset"}
"""Which attribute of an element names what a browser loads by itself."""


class Page(HTMLParser):
    """What a page of the site has and refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := named.get(name)))
        wanted = named.get(_LOADED.get(tag, ""))
        if wanted:
            self.loaded.append(wanted)
        elif tag in ("script", "style"):
            self.inline.append(tag)
        self.inline += [name for name in named if name == "style" or name.startswith("on")]
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, once for all tests."""
    folder = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "docs.site.build", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@functools.cache
def page(path: Path) -> Page:
    return Page(path.read_text())


@functools.cache
def linked(folder: Path, target: str) -> Path | None:
    """Return the file that a link of a page leads to; the pages of a folder have one menu."""
    file = (folder / unquote(target.partition("?")[0])).resolve()
    return file if file.is_file() else None


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(site: Path) -> None:
    dead = set()
    for path in site.rglob("*.html"):
        for link in {*page(path).links, *page(path).loaded}:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = linked(path.parent, target) if target else path
            if not file or (anchor and anchor not in page(file).ids):
                dead.add(f"{path.relative_to(site)}: {link}")
    assert dead == set()


def test_the_site_asks_for_nothing_outside_and_has_nothing_inline(site: Path) -> None:
    pages = {path.relative_to(site): page(path) for path in site.rglob("*.html")}
    assert len(pages) > 80
    foreign = {name: one.loaded for name, one in pages.items() if any(map(_foreign, one.loaded))}
    assert foreign == {}
    assert {name: one.inline for name, one in pages.items() if one.inline} == {}
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", sheet.read_text())
        assert not [one for one in loaded if _foreign(one)], sheet


def _foreign(address: str) -> bool:
    return re.match(r"(https?:)?//", address) is not None


def test_the_library_page_lists_what_is_public(site: Path) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "library.md").read_text(), re.MULTILINE)
    assert listed == packhorse.__all__
    assert {name.lower() for name in packhorse.__all__} <= page(site / "library.html").ids


@pytest.mark.parametrize("document", sorted(ROOT.glob("openapi/*.yaml")), ids=lambda one: one.stem)
def test_each_operation_and_schema_is_on_its_page(site: Path, document: Path) -> None:
    loaded = parsed(document.read_text())
    built = site / "api" / f"{document.stem}.html"
    text = re.sub(r"<[^>]+>", "", built.read_text())
    calls = {
        f"{method.upper()} {path}"
        for path, item in loaded["paths"].items()
        for method in item.keys() & _METHODS
    }
    assert {call for call in calls if call not in text} == set()
    schemas = {f"{document.stem}-{name}".lower() for name in loaded["components"]["schemas"]}
    assert schemas - page(built).ids == set()
