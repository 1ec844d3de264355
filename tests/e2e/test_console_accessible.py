"""Each page of the console in a real browser, in both themes: axe finds nothing wrong with it.

The themes differ in colours only, so that axe looks in the second one at these.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.harness.browser import Tab
from tests.harness.client_tools import node_modules
from tests.harness.screenshots import PAGES, pictured_site, shown, visited

_PINNED = Path(__file__).parents[1] / "harness" / "axe"
_WIDE = 1280
_LONG = "a-name-that-somebody-made-from-a-whole-headline-" * 4
_RULES: dict[Literal["light", "dark"], dict[str, list[str]]] = {
    "light": {},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}
_LOOK = """async rules => {
    const options = {...rules, preload: false, resultTypes: ["violations"]};
    const found = await axe.run(options);
    const shown = nodes => nodes.slice(0, 3).map(node => node.html);
    return [found.passes.length, found.violations.map(one => [one.id, shown(one.nodes)])];
}"""
"""Gives how many rules hold, and the first places of those that do not.

Only rules on sound and films need what is loaded ahead, and the pages have none.
"""
_CUT_OFF = """() => [document.documentElement, ...document.querySelectorAll("section")]
    .filter(one => one.scrollWidth > one.clientWidth)
    .map(one => `${one.ariaLabel ?? "page"}: ${one.scrollWidth} > ${one.clientWidth}`).join()"""


@dataclass
class Looked:
    """What was seen of all pages, each opened once."""

    wrong: dict[str, list[str]] = field(default_factory=dict)
    """The first places of each rule that does not hold, by page and theme."""
    too_wide: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def looked(browser: Browser) -> Looked:
    axe = (node_modules("axe", _PINNED) / "axe-core" / "axe.min.js").read_text()
    seen = Looked()
    with pictured_site() as site, visited(browser, site, "light", _WIDE) as opened:
        for kind in ("releases", "distributions"):
            site.publisher.answers[f"GET /{kind}"][kind][0].update(name=_LONG, paths=[f"/{_LONG}"])
        seen.complaints = opened.complaints
        for name in PAGES:
            shown(opened, site, name)
            _measure(opened, name, seen)
            opened.page.evaluate(axe)
            for scheme, rules in _RULES.items():
                opened.page.emulate_media(color_scheme=scheme)
                held, broken = opened.page.evaluate(_LOOK, rules)
                assert held, f"axe has not looked at {name}"
                seen.wrong |= {f"{name}, {scheme}: {rule}": places for rule, places in broken}
    return seen


def _measure(opened: Tab, name: str, seen: Looked) -> None:
    for width in (390, 1024):
        opened.page.set_viewport_size({"width": width, "height": 800})
        if found := opened.page.evaluate(_CUT_OFF):
            seen.too_wide[f"{name} at {width}"] = found
    opened.page.set_viewport_size({"width": _WIDE, "height": 800})


def test_no_page_keeps_anybody_out(looked: Looked) -> None:
    assert looked.complaints == []
    assert looked.wrong == {}, json.dumps(looked.wrong, indent=1)


def test_nothing_is_cut_off_in_a_narrow_window_whatever_it_is_called(looked: Looked) -> None:
    assert looked.too_wide == {}
