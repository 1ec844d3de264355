"""The figures as a table on the terminal, and as a plot."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table


def show(lines: list[dict[str, Any]], plot: Path) -> None:
    """Print how every figure grows with the size, and draw the same into `plot`."""
    columns = (
        *("name", "size", "value", "unit", "whole"),
        *("anchor_value", "ratio", "python_mib", "jvm_mib"),
    )
    table = Table(*columns)
    for line in sorted(lines, key=lambda each: (each["name"], each["size"])):
        cells = [line.get(column) for column in columns]
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console(width=140).print(table)
    figure = Figure(figsize=(11, 5))
    rates, memory = figure.subplots(1, 2)
    _draw(rates, lines, "whole", "per second, the start included")
    _draw(memory, lines, "python_mib", "MiB at the driver, at most")
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(plot)
    print(f"plot: {plot}")


def _draw(axes: Any, lines: list[dict[str, Any]], value: str, label: str) -> None:
    series: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for line in lines:
        if line.get(value) is not None:
            series[line["name"]].append((line["size"], line[value]))
    for name, points in sorted(series.items()):
        sizes, values = zip(*sorted(points), strict=True)
        axes.plot(sizes, values, marker="o", label=name)
    axes.set(xscale="log", xlabel="size", ylabel=label)
    axes.set_ylim(bottom=0)
    axes.legend()
