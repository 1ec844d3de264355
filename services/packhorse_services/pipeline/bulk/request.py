"""What somebody wants to distribute in bulk."""

from dataclasses import dataclass, field


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
