"""Text of the pages can be read: a contrast of 4.5 : 1 in both themes (WCAG 2.2, 1.4.3)."""

import re
from itertools import product

import pytest

from packhorse_services.console.frame.rendering import STATIC

_CSS = STATIC["page.css"][0].decode()
_THEMES = [
    dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", _CSS, re.DOTALL)
]
_INKS = ("text", "quiet", "link", "good", "busy", "warn", "bad", "rest")
_GROUNDS = ("ground", "raised", "badge")


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", _THEMES, ids=["light", "dark"])
def test_every_ink_can_be_read_on_every_ground(theme: dict[str, str]) -> None:
    pairs = [*product(_INKS, _GROUNDS), ("text", "leader")]
    poor = {pair: _contrast(*(theme[name] for name in pair)) for pair in pairs}
    assert {pair: found for pair, found in poor.items() if found < 4.5} == {}
