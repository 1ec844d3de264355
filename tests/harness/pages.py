"""The pages of the documentation: in which order they are read, their links and their headings."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def every_page() -> list[Path]:
    """Return every page in Markdown that people read."""
    beside = [*ROOT.glob("clients/*/README.md"), ROOT / "services" / "README.md"]
    return [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *beside]


def read_together(start: Path) -> str:
    """Return a page and, when it is the first of a folder, those that it lists, in their order."""
    text = start.read_text()
    if start.name != "README.md" or start.parent == ROOT:
        return text
    listed = re.findall(r"^\d+\. \[[^]]+\]\(([a-z-]+\.md)\)", text, re.MULTILINE)
    others = {page.name for page in start.parent.glob("*.md")} - {start.name}
    assert set(listed) == others, f"{start} lists each page of its folder once"
    return "\n".join([text, *((start.parent / name).read_text() for name in listed)])


def links(page: Path) -> list[str]:
    """Return where a page's links lead, as they are written."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings have, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = 0
        while (numbered := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(numbered)
    return found
