"""What a request would export, without publishing anything."""

import threading
from dataclasses import dataclass

from packhorse.db.metadata import EXPORTER
from packhorse.db.pool import Lender
from packhorse.db.roles import act_as
from packhorse.errors import Transient
from packhorse.packages.body import BodyMeter
from packhorse.packages.build import export
from packhorse.packages.compression import compress_stream
from packhorse.packages.limits import INLINE_BYTES, PackageLimits
from packhorse.wire.actions import exports
from packhorse_services.publisher.outbox.request import DistributionRequest

AT_ONCE = 2
"""How many dry runs one process does at a time; each may be a whole export."""


class TooManyDryRuns(Transient):
    """As many dry runs are under way as may be at a time; try again."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a package would hold; `body_bytes` is its size as stored."""

    nodes: int = 0
    content_bytes: int = 0
    body_bytes: int = 0

    @property
    def inline(self) -> bool:
        """Whether it would travel inside the record (R7)."""
        return self.body_bytes <= INLINE_BYTES


class DryRuns:
    """Measures requests, a few at a time; `measure` may be called by any thread."""

    def __init__(self, pool: Lender, limits: PackageLimits) -> None:
        """Take a pool of `AT_ONCE` connections that nobody else uses."""
        self._pool, self._limits = pool, limits
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def measure(self, request: DistributionRequest) -> Measured:
        """Return what the request would export. Raises `TooManyDryRuns`, and as `measure` does."""
        if not self._places.acquire(blocking=False):
            raise TooManyDryRuns(
                f"{AT_ONCE} dry runs are under way in this publisher, as many as may be; try again"
            )
        try:
            return measure(self._pool, request, self._limits)
        finally:
            self._places.release()


def measure(pool: Lender, request: DistributionRequest, limits: PackageLimits) -> Measured:
    """Export from one snapshot and count, in constant memory.

    Raises what `packages.build.export` raises, and `PackageRefused` as `packages.body.pack` does.
    """
    with pool.connection() as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        act_as(connection, EXPORTER)
        nodes = export(connection, request.action, request.paths, request.deep_paths, request.roots)
        if not exports(request.action):
            return Measured()
        meter = BodyMeter(limits)
        body_bytes = sum(map(len, compress_stream(meter.content(nodes))))
    return Measured(meter.count, meter.length, body_bytes)
