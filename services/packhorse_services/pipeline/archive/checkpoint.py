"""Spark's checkpoint of the archive's query: where each batch ends, and which batch was the last.

A batch's transaction in the tables follows from where it begins and ends (`BatchMark`), so a
checkpoint and the tables can be held together. A checkpoint that is begun anew lies in a folder
named by the version that bronze had then.
"""

import json
from dataclasses import dataclass
from typing import Any

from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.errors import CheckpointCorrupt
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.delta import BatchMark
from packhorse_services.pipeline.storage.location import Location


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint; Spark makes its folder when the query starts."""

    location: Location
    begun: int
    """Bronze's version of the archive's transactions when it was begun; 0 for none."""

    @property
    def path(self) -> str:
        """Where Spark finds it."""
        return self.location.spark_path(self._name)

    def mark(self, batch: int) -> BatchMark:
        """Return what the tables note of a batch that is planned. Raises `CheckpointCorrupt`."""
        before = at.version_of(self.end_of(batch - 1)) if batch else self.begun
        return BatchMark(before, at.version_of(self.end_of(batch)))

    def end_of(self, batch: int) -> Places:
        """Return where a planned batch ends. Raises `CheckpointCorrupt`."""
        name = f"offsets/{batch}"
        lines = self._versioned(name)
        if len(lines) != 2:
            raise self.corrupt(name, f"it tells of {len(lines) - 1} sources, not of one")
        try:
            return at.from_document(self._document(name, lines[1]))
        except (ValueError, TypeError) as error:
            raise self.corrupt(name, "it is another query's") from error

    def finished(self) -> int | None:
        """Return its last finished batch. Raises `CheckpointCorrupt` when that is not whole."""
        batches = [int(name) for name in self._names("commits") if name.isdecimal()]
        if not batches:
            return None
        self._document("metadata", self._text("metadata"))
        self._versioned(f"commits/{max(batches)}")
        return max(batches)

    def has_planned(self, batch: int) -> bool:
        """Return whether a batch is planned, finished or not."""
        return str(batch) in self._names("offsets")

    def corrupt(self, name: str, why: str) -> CheckpointCorrupt:
        """Return the error for a damaged file, which tells the way out."""
        return CheckpointCorrupt(
            f"the checkpoint {self.path} is damaged ({name}: {why}); run it with --new-checkpoint "
            "to go on from what the tables hold"
        )

    @property
    def _name(self) -> str:
        return f"{tables.CHECKPOINTS}/{self.begun}"

    def _names(self, below: str) -> list[str]:
        return arrow_files.names(self.location, f"{self._name}/{below}")

    def _text(self, name: str) -> str:
        place = arrow_files.path(self.location, f"{self._name}/{name}")
        try:
            with arrow_files.filesystem(self.location).open_input_file(place) as file:
                return str(file.read().decode())
        except (OSError, ValueError) as error:
            raise self.corrupt(name, "it can't be read") from error

    def _versioned(self, name: str) -> list[str]:
        """Return the lines below the version, the first of which is JSON."""
        version, *lines = self._text(name).split("\n")
        if version != "v1" or not lines:
            raise self.corrupt(name, "it is not as Spark writes it")
        self._document(name, lines[0])
        return lines

    def _document(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.corrupt(name, "it is not whole") from error


def newest(location: Location) -> Checkpoint | None:
    """Return the checkpoint that was begun last, if there is one."""
    names = arrow_files.names(location, tables.CHECKPOINTS)
    begun = [int(name) for name in names if name.isdecimal()]
    return Checkpoint(location, max(begun)) if begun else None


def remove_all(location: Location) -> None:
    """Remove all checkpoints of the archive."""
    place = arrow_files.path(location, tables.CHECKPOINTS)
    arrow_files.filesystem(location).delete_dir_contents(place, missing_dir_ok=True)
