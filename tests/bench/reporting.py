"""How each benchmark says what it measured: one JSON line a figure.

A line has `bench` (the module that measured), `name`, `value` and `unit`; beside an anchor of the
same run also `anchor` (its name), `anchor_value` and `ratio`, the value over the anchor's. Further
figures stand under names that end with their unit. `load` is the machine's average load over the
last minute. Lines go to standard output and to the end of the file that `BENCH_LINES` names.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def emit(
    name: str,
    value: float | None,
    unit: str,
    *,
    anchor: tuple[str, float] | None = None,
    **more: object,
) -> dict[str, Any]:
    """Report a figure and return its line; `anchor` is the name and value of what it stands beside.

    Without a `value` it is what the further figures say.
    """
    line: dict[str, Any] = {"bench": _bench(), "name": name, "value": _short(value)}
    line["unit"] = unit
    if anchor is not None:
        line["anchor"], line["anchor_value"] = anchor[0], _short(anchor[1])
        line["ratio"] = None if value is None else _short(value / anchor[1])
    line |= {key: _short(one) if isinstance(one, float) else one for key, one in more.items()}
    line["load"] = round(os.getloadavg()[0], 1)
    text = json.dumps(line, ensure_ascii=False) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    if kept := os.environ.get("BENCH_LINES"):
        with Path(kept).open("a") as file:
            file.write(text)
    return line


def _bench() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.removeprefix("tests.bench.").removesuffix(".__main__") if spec else "?"


def _short(value: float | None) -> float | None:
    """Four digits say as much as a measurement on a shared machine can."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
