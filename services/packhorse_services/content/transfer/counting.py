"""What has become of the entries of a transfer: counted, and told to whoever watches."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class ImportCounts:
    """What has become of the entries so far."""

    files: int = 0
    folders: int = 0
    nodes: int = 0
    unchanged: int = 0
    skipped: int = 0
    refused: int = 0
    bytes: int = 0


class TransferWatcher(Protocol):
    """Is told as a transfer goes on."""

    def report(self, counts: ImportCounts) -> None:
        """Hear how far it is."""
        ...

    def refuse(self, name: str, reason: str) -> None:
        """Hear what could not be taken, and why."""
        ...

    def skip(self, name: str, reason: str) -> None:
        """Hear what is left out on purpose, and why."""
        ...


class TransferCounter:
    """The counts of one transfer, of which its watcher is told."""

    def __init__(self, watcher: TransferWatcher) -> None:
        self.counts, self._watcher = ImportCounts(), watcher

    @property
    def is_empty(self) -> bool:
        """Whether nothing was met yet."""
        return self.counts == ImportCounts()

    def report(self) -> None:
        """Say how far it is."""
        self._watcher.report(self.counts)

    def refuse(self, name: str, reason: str) -> None:
        """Count what can't be taken, and name it."""
        self.counts.refused += 1
        self._watcher.refuse(name, reason)

    def skip(self, name: str, reason: str) -> None:
        """Count what is left out, and name it."""
        self.counts.skipped += 1
        self._watcher.skip(name, reason)
