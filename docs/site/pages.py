"""Pages of the repository as pages of the site: their places, their links, their pictures."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s#:]*)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"^!\[([^]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE)
_NAMED_FILE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)
CLIENTS = ("typescript", "java", "go")
_BESIDE = {
    "services/README.md": "services.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{f"clients/{one}/README.md": f"clients/{one}.md" for one in CLIENTS},
}
"""Pages outside docs/ that the site has too."""
DOWNLOADS = ("docs/tables.ipynb", "docs/tables-grafana.json", "docs/benchmarks.jsonl")
"""Files that are downloaded as they are."""
_ELSEWHERE = {
    "README.md": "index.md",
    "openapi": "api.md",
    "asyncapi/events.yaml": "api/events.md",
    **{one: one.removeprefix("docs/") for one in DOWNLOADS},
}


def placed() -> dict[str, str]:
    """Return each page's place in the site, by its path in the repository."""
    found = dict(_BESIDE)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        inside = page.relative_to(ROOT / "docs")
        name = "index.md" if page.name == "README.md" else page.name
        found[f"docs/{inside}"] = str(inside.with_name(name))
    return found


def place_of(target: str, pages: dict[str, str]) -> str | None:
    """Return the place of what a link in the repository leads to, None where the site lacks it."""
    if target in pages:
        return pages[target]
    if (ROOT / target).is_dir() and f"{target}/README.md" in pages:
        return pages[f"{target}/README.md"]
    if target.startswith("openapi/"):
        return f"api/{Path(target).stem}.md"
    return _ELSEWHERE.get(target)


def as_site_page(source: str, text: str, pages: dict[str, str]) -> str:
    """Return a page's text for the site: links to pages of the site, pictures as a part of it."""
    parts = _CODE.split(text)  # prose and code in turn
    parts[1::2] = [_with_caption(code) for code in parts[1::2]]
    parts[::2] = [_prose(source, prose, pages) for prose in parts[::2]]
    return "".join(parts)


def _prose(source: str, text: str, pages: dict[str, str]) -> str:
    linked = _LINK.sub(lambda found: _led(source, found, pages), text)
    return _PICTURE.sub(lambda found: _drawn(source, *found.groups()), linked)


def _led(source: str, found: re.Match[str], pages: dict[str, str]) -> str:
    text, target, anchor = found[1], found[2], found[3] or ""
    if not target:
        return found[0]
    place = place_of(os.path.normpath(Path(source).parent / target), pages)
    if place is None:  # a file of the sources, which the site does not have
        return text if "`" in text else f"`{text}`"
    return f"[{text}]({os.path.relpath(place, Path(pages[source]).parent)}{anchor})"


def _drawn(source: str, says: str, target: str) -> str:
    """Return a drawing as an element of the page, which has the page's colours and no style."""
    drawing = (ROOT / source).parent.joinpath(target).read_text()
    inside = _STYLE.sub("", drawing).replace("<svg ", f'<svg role="img" aria-label="{says}" ')
    return f'```{{raw}} html\n<div class="picture">{inside.strip()}</div>\n```'


def _with_caption(code: str) -> str:
    """Return code that has a file's name with this name above it."""
    return _NAMED_FILE.sub(r"```{code-block} \1\n:caption: \2\n", code, count=1)
