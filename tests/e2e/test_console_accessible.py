"""Each page of the console in a real browser, in both themes: axe finds nothing wrong with it.

The themes differ in colours only, so that axe looks in the second one at these.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.harness.client_tools import node_modules
from tests.harness.console import ConsoleSite
from tests.harness.screenshots import PAGES, pictured_site, shown, visited

_PINNED = Path(__file__).parents[1] / "harness" / "axe"
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


@pytest.fixture(scope="module")
def site() -> Iterator[ConsoleSite]:
    with pictured_site() as served:
        yield served


def test_no_page_keeps_anybody_out(browser: Browser, site: ConsoleSite) -> None:
    axe = (node_modules("axe", _PINNED) / "axe-core" / "axe.min.js").read_text()
    wrong = {}
    with visited(browser, site, "light", 1280) as opened:
        for name in PAGES:
            shown(opened, site, name)
            opened.page.evaluate(axe)
            for scheme, rules in _RULES.items():
                opened.page.emulate_media(color_scheme=scheme)
                held, broken = opened.page.evaluate(_LOOK, rules)
                assert held, f"axe has not looked at {name}"
                wrong |= {f"{name}, {scheme}: {rule}": places for rule, places in broken}
        assert opened.complaints == []
    assert wrong == {}, json.dumps(wrong, indent=1)


def test_no_page_is_wider_than_a_narrow_window(browser: Browser, site: ConsoleSite) -> None:
    wide = {}
    with visited(browser, site, "light", 390) as opened:
        for name in PAGES:
            shown(opened, site, name)
            width = opened.page.evaluate("document.documentElement.scrollWidth")
            wide |= {name: width} if width > 390 else {}
    assert wide == {}
