"""How columns are described (name, type, meaning, unit), and held against those of a table."""

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from packhorse_services.pipeline.errors import SchemaChanged

BYTES = "bytes"
MS = "ms"
EPOCH_MS = "ms since 1970 UTC"


def column(
    name: str, kind: t.DataType, meaning: str, unit: str = "", *, nullable: bool = False
) -> t.StructField:
    """Return a column. Its comment, as Delta and Spark keep it, has the meaning and the unit."""
    comment = f"{meaning} [{unit}]" if unit else meaning
    metadata = {"comment": comment, "unit": unit} if unit else {"comment": comment}
    return t.StructField(name, kind, nullable, metadata)


def text(name: str, meaning: str) -> t.StructField:
    """Return a column of texts."""
    return column(name, t.StringType(), meaning)


def texts(name: str, meaning: str) -> t.StructField:
    """Return a column of lists of texts."""
    return column(name, t.ArrayType(t.StringType(), False), meaning)


def integer(name: str, meaning: str, unit: str = "") -> t.StructField:
    """Return a column of 32 bits."""
    return column(name, t.IntegerType(), meaning, unit)


def long(name: str, meaning: str, unit: str = "") -> t.StructField:
    """Return a column of 64 bits."""
    return column(name, t.LongType(), meaning, unit)


def require(frame: DataFrame, schema: t.StructType, table: str) -> DataFrame:
    """Return the columns of `schema` from `frame`, in order. Raises `SchemaChanged`."""
    compare(frame.schema, schema, table)
    return frame.select(*[field.name for field in schema.fields])


def compare(actual: t.StructType, schema: t.StructType, table: str) -> None:
    """Raise `SchemaChanged` unless `actual` has the columns of `schema`."""
    found = {field.name: field.dataType for field in actual.fields}
    for field in schema.fields:
        if field.name not in found:
            raise SchemaChanged(
                f"table {table} lacks the column {field.name}; another build has written it"
            )
        if found[field.name].simpleString() != field.dataType.simpleString():
            raise SchemaChanged(
                f"column {field.name} of {table} is {found[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; another build has written it"
            )
