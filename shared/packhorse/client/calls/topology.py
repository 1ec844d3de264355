"""Who is alive, in which order, and who leads."""

from packhorse.client.exchange import Document, Operation, Request, requested, segment


def topology() -> Operation[Document]:
    """Return the `clusters` with their `instances`, the own cluster first; `current` or not."""
    return (yield from requested(Request("GET", "/topology", "topology")))


def instance(name: str) -> Operation[Document]:
    """Return one instance, whatever its cluster."""
    return (
        yield from requested(Request("GET", f"/topology/instances/{segment(name)}", "topology"))
    )


def connectors() -> Operation[list[Document]]:
    """Return the connectors to other clusters, and how they are."""
    found = yield from requested(Request("GET", "/topology/connectors", "topology"))
    rows: list[Document] = found["connectors"]
    return rows
