"""What Sphinx builds the site with; `docs/site/build.py` runs it."""

from functools import cache
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

import packhorse

project = "packhorse"
author = "the packhorse authors"
release = version = packhorse.__version__
copyright = "the packhorse authors, Apache-2.0"  # noqa: A001 - Sphinx's name

extensions = ["myst_parser"]
exclude_patterns: list[str] = []
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis in it

html_theme = "furo"
html_title = f"packhorse {release}"
html_static_path = ["static"]
html_css_files = ["packhorse.css"]
templates_path = ["templates"]
html_copy_source = html_show_sourcelink = False
html_use_index = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style, pygments_dark_style = "tango", "github-dark"


class _English(SearchEnglish):
    """English, each word of which is reduced to its stem once and not wherever it stands."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.stem = cache(super().stem)  # type: ignore[method-assign]


_menus: dict[str, str] = {}


def _share_menu(
    _app: Sphinx, pagename: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Give the decisions, which no menu lists, one menu: to make it takes longer than the page."""
    if not pagename.startswith("adr/0"):
        return
    make = context["toctree"]

    def shared(**options: Any) -> str:
        if str(options) not in _menus:
            _menus[str(options)] = make(**options)
        return _menus[str(options)]

    context["toctree"] = shared


def setup(app: Sphinx) -> None:
    """Save Sphinx and its theme what they would do again for each page."""
    app.add_search_language(_English)
    app.connect("html-page-context", _share_menu, priority=400)  # the theme's own comes at 500
