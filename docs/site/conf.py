"""What Sphinx builds the site with; `docs/site/build.py` runs it."""

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
