"""What a bulk distribution has stored so far, and whether somebody has cancelled it.

Read and marked without Spark, so that going on and cancelling take no start of a JVM.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location, store_error
from packhorse_services.pipeline.storage.queries import RELATION, rows


@dataclass(frozen=True, slots=True)
class Export:
    """A subtree, the author that has it, and where its packages go."""

    bulk_id: str
    deep_path: str
    database_url: str = field(repr=False)
    blobs_url: str = field(repr=False)
    part_nodes: int
    part_bytes: int


def producer_of(bulk_id: str) -> str:
    """Return the name under which the publisher numbers its parts."""
    return f"bulk-{bulk_id}"


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of the subtree, and the package of it that is in the blob store."""

    number: int
    deep_path: str
    range_from: str
    range_to: str
    package_id: str
    body_sha256: str
    body_length: int
    content_length: int
    node_count: int
    seen_epoch: int
    seen_sequence: int
    """The number of the last package that the author had made when it was read (R6)."""


_STORED = ["part AS number", *(one.name for one in fields(StoredPart) if one.name != "number")]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bulk distribution whose packages are all stored."""

    deep_path: str
    parts: int
    snapshot_ms: int
    """When its snapshot was taken, by the author's clock."""


_STATE = "the state of bulk distributions can't be used"


class BulkState:
    """The state of one bulk distribution. Every method may raise what `store_error` returns."""

    def __init__(self, location: Location, bulk_id: str) -> None:
        self._parts = location.delta_uri(tables.bulk_parts(bulk_id))
        self._cancelled = location.delta_uri(tables.bulk_cancelled(bulk_id))
        self._options = location.delta_options()

    def note(self, parts: pa.Table) -> None:
        """Note all parts that were stored, in one commit: of several runs only the first one does.

        Raises `TaskFailed` for the others.
        """
        try:
            write_deltalake(
                self._parts,
                parts,
                mode="error",
                storage_options=self._options,
                # Delta-rs would try again behind a commit that came first, and add to its rows.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as error:
            if not self._exists(self._parts):
                raise store_error(_STATE, error) from error
            raise TaskFailed(
                "another run of the same --id has exported meanwhile, or this one without hearing "
                "so; run it again to go on with what is stored"
            ) from error

    def prepared(self) -> Prepared | None:
        """Return what was prepared, or None as long as the first phase has not ended."""
        if not self._exists(self._parts):
            return None
        first = next(self._rows(["deep_path", "part_count", "snapshot_ms"]))
        return Prepared(first["deep_path"], first["part_count"], first["snapshot_ms"])

    def nodes_up_to(self, last: int) -> tuple[int, int]:
        """Return how many nodes the parts up to number `last` have, and how many all have."""
        behind = total = 0
        for row in self._rows(["part", "node_count"]):
            total += row["node_count"]
            behind += row["node_count"] if row["part"] <= last else 0
        return behind, total

    def parts(self, after: int) -> Iterator[StoredPart]:
        """Yield the parts with a number above `after`, in order."""
        for row in self._rows(_STORED):
            if row["number"] > after:
                yield StoredPart(**row)

    def cancelled(self) -> bool:
        """Return whether somebody has cancelled it."""
        return self._exists(self._cancelled)

    def cancel(self) -> None:
        """Let no further part go out. Doing so again changes nothing."""
        try:
            write_deltalake(
                self._cancelled,
                pa.table({"cancelled": [True]}),
                mode="ignore",
                storage_options=self._options,
            )
        except (DeltaError, OSError) as error:
            raise store_error(_STATE, error) from error

    def _exists(self, uri: str) -> bool:
        try:
            return DeltaTable.is_deltatable(uri, self._options)
        except (DeltaError, OSError) as error:
            raise store_error(_STATE, error) from error

    def _rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows in the order of their parts."""
        chosen = ", ".join(columns)
        try:
            table = DeltaTable(self._parts, storage_options=self._options)
            yield from rows(table, f"SELECT {chosen} FROM {RELATION} ORDER BY part")  # noqa: S608
        except (DeltaError, OSError) as error:
            raise store_error(_STATE, error) from error
