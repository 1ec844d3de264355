"""docs/tables.ipynb: what docs/tables.md says about DuckDB, as a notebook that Jupyter runs.

`python -m tests.harness.table_notebook` writes it from the page.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.harness.table_page import PAGE

NOTEBOOK = PAGE.with_suffix(".ipynb")
_TITLE = "# Tables of the pipeline: questions and answers\n"
_SPARK = re.compile(r"^With Spark, .*?^```\n\n", re.M | re.S)
_BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```\n", re.M | re.S)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def notebook() -> str:
    """Return the notebook, as nbformat 4.5 has it; its cells are in the order of the page."""
    cells = [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(_cells())]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def code() -> Iterator[str]:
    """Yield the cells that are run."""
    for cell in _cells():
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def _cells() -> Iterator[dict[str, Any]]:
    page = PAGE.read_text().partition("\n## In Grafana\n")[0]
    text = _SPARK.sub("", _TITLE + page[page.index("## Open them") :])
    after = 0
    for block in _BLOCK.finditer(text):
        yield from _prose(text[after : block.start()])
        language, lines = block.groups()
        source = lines if language == "python" else f'database.sql("""\n{lines}""").df()\n'
        yield {"cell_type": "code", "execution_count": None, "outputs": [], **_source(source)}
        after = block.end()
    yield from _prose(text[after:])


def _prose(text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"cell_type": "markdown", **_source(_LINK.sub(r"\1", text))}


def _source(text: str) -> dict[str, Any]:
    return {"metadata": {}, "source": text.strip().splitlines(keepends=True)}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook())
