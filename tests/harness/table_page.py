"""The columns in docs/tables.md: `python -m tests.harness.table_page` writes them from the code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from packhorse_services.pipeline.audit.task import FINDINGS
from packhorse_services.pipeline.bulk.export import BULK_PARTS
from packhorse_services.pipeline.storage.delta import ARCHIVE, MEASURES, partitions
from packhorse_services.pipeline.storage.tables import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
BEGIN = "<!-- From here on made by `make tables`; what stands here is changed in the schemas. -->\n"

PREPARED: Mapping[str, StructType] = {**ARCHIVE, **MEASURES}
"""The tables that are made before anything is written."""

OF_RUNS: Mapping[str, tuple[StructType, str]] = {
    "bulk/<id>/parts": (BULK_PARTS, "The parts of a bulk distribution, all of one snapshot"),
    "audit/<run>": (FINDINGS, "A row for each path at which a subscriber is not as it should be"),
}
"""The tables that a run makes under its own name."""


@dataclass(frozen=True, slots=True)
class Column:
    """A row of the page."""

    name: str
    kind: str
    unit: str
    meaning: str


def columns(schema: StructType, within: str = "") -> Iterator[Column]:
    """Yield a table's columns; the fields of a struct follow it as `column.field`."""
    for field in schema.fields:
        inner = _struct(field.dataType)
        kind = "array<struct>" if inner else field.dataType.simpleString()
        yield Column(within + field.name, kind, *_unit_and_meaning(field))
        if inner:
            yield from columns(inner, f"{within}{field.name}.")


def _struct(kind: DataType) -> StructType | None:
    inner = kind.elementType if isinstance(kind, ArrayType) else kind
    return inner if isinstance(inner, StructType) else None


def _unit_and_meaning(field: StructField) -> tuple[str, str]:
    unit, comment = field.metadata.get("unit", ""), field.metadata["comment"]
    return unit, comment.removesuffix(f" [{unit}]")


def _table(name: str, schema: StructType, meaning: str) -> str:
    by = " and ".join(f"`{one}`" for one in partitions(schema))
    lines = [
        f"### `{name}`\n",
        f"{meaning}. {f'Partitioned by {by}' if by else 'Not partitioned'}.\n",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
        *(f"| `{c.name}` | `{c.kind}` | {c.unit} | {c.meaning} |" for c in columns(schema)),
    ]
    return "\n".join(lines) + "\n"


def written() -> str:
    """Return the page with its columns as the code has them."""
    by_hand = PAGE.read_text().partition(BEGIN)[0]
    prepared = [(name, schema, MEANINGS[name]) for name, schema in PREPARED.items()]
    of_runs = [(name, schema, meaning) for name, (schema, meaning) in OF_RUNS.items()]
    tables = "\n".join(_table(*one) for one in [*prepared, *of_runs])
    return f"{by_hand}{BEGIN}\n## Columns\n\n{tables}"


if __name__ == "__main__":
    PAGE.write_text(written())
