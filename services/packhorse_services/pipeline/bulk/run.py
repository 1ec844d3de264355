"""One bulk distribution from its beginning, or from where an earlier run was ended, to its end."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import stamina
from pyspark.sql import SparkSession

from packhorse.content.parts import SubtreePart
from packhorse.db.rows import now_ms
from packhorse.runtime.signals import set_by_signals
from packhorse_services.pipeline.bulk.cancelling import BulkCancelled, BulkStopped, Stopping, is_out
from packhorse_services.pipeline.bulk.export import store
from packhorse_services.pipeline.bulk.prepare import prepare
from packhorse_services.pipeline.bulk.progress import Amount, PhaseProgress
from packhorse_services.pipeline.bulk.publisher_api import PublisherClient, StalePart
from packhorse_services.pipeline.bulk.snapshot import author_snapshot
from packhorse_services.pipeline.bulk.state import (
    BulkState,
    Export,
    Prepared,
    StoredPart,
    producer_of,
)
from packhorse_services.pipeline.engine.databases import AUTHOR, reading
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.errors import Conflict, TaskFailed
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

EXPORTS = 8
"""How often one part is exported again before it is given up."""

_WAIT_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class AppendedParts:
    """What a run has done."""

    sent: int
    earlier: int
    """Parts that an earlier run had sent."""
    exported_again: int
    nodes: int
    """Nodes of all parts, as they were prepared."""
    seconds: float


class Appending:
    """Sends what is behind the producer's last sequence: a part's number is its sequence.

    `reexport` returns a part as another package, of a newer snapshot.
    """

    def __init__(
        self,
        publisher: PublisherClient,
        state: BulkState,
        reexport: Callable[[StoredPart], StoredPart],
        stopping: Stopping,
    ) -> None:
        self._publisher, self._state = publisher, state
        self._reexport, self._stopping = reexport, stopping
        self._exported_again = 0

    def run(
        self, producer: str, prepared: Prepared, reached: Callable[[Amount], None]
    ) -> AppendedParts:
        """Send the parts that no run has sent yet; `reached` is called with how many are out.

        Raises:
            BulkStopped, BulkCancelled: it was; says how many parts went out.
            Conflict: another run has registered the producer, or has sent the package.
            TaskFailed: a part was written during each export.
            PublisherAway, TaskRefused, PathMissing.
        """
        began = time.monotonic()
        epoch, last = self._publisher.register(producer)
        nodes, total = self._state.nodes_up_to(last)
        earlier = out = last + 1
        reached(Amount(out, nodes))
        try:
            for part in self._state.parts(after=last):
                self._stopping.check()
                self._send(part, producer, epoch)
                out, nodes = out + 1, nodes + part.node_count
                reached(Amount(out, nodes))
        except (BulkStopped, BulkCancelled) as error:
            raise type(error)(f"{error}: {out} of {prepared.parts} parts went out") from error
        return AppendedParts(
            out - earlier, earlier, self._exported_again, total, time.monotonic() - began
        )

    def _send(self, part: StoredPart, producer: str, epoch: int) -> None:
        try:
            for attempt in stamina.retry_context(
                on=StalePart, attempts=EXPORTS, timeout=None, wait_max=_WAIT_MAX_S
            ):
                with attempt:
                    if attempt.num > 1:
                        part = self._again(part)
                    self._publisher.append(part, producer, epoch)
        except StalePart as error:
            raise TaskFailed(
                f"part {part.number} ({part.range_from or part.deep_path}) was changed and "
                f"distributed during each of {EXPORTS} exports; run it again to go on there"
            ) from error

    def _again(self, part: StoredPart) -> StoredPart:
        self._stopping.check()
        self._exported_again += 1
        return self._reexport(part)


RESUMED_WITHIN_DAYS = 7
"""How old a snapshot may be when a run goes on with it: publishers forget unused producers."""

_DAY_MS = 24 * 3600 * 1000


def distribute(settings: Settings, export: Export, begins: Callable[[], None]) -> AppendedParts:
    """Prepare what is not prepared yet, and send what has not been sent yet.

    `begins` is called once, when there is something that may be interrupted and gone on with.

    Raises:
        Conflict: the id is another path's, cancelled, too old, or at work elsewhere.
        BulkStopped, BulkCancelled: it was.
        PathMissing, PublisherAway, TaskRefused, TaskFailed, TablesUnusable.
    """
    server, token = settings.publisher_url, settings.publisher_bearer
    location = Location.parse(settings.tables_url)
    state = BulkState(location, export.bulk_id)
    prepared = state.prepared()
    if state.cancelled() and not (prepared and is_out(export.bulk_id, prepared, server, token)):
        raise Conflict(f"{export.bulk_id} was cancelled; begin anew with another --id")
    if prepared is None:
        _prepare(settings, location, export, Stopping(state), begins)
        prepared = state.prepared()
    else:
        _require_same(prepared, export)
        begins()
    if prepared is None:
        raise TaskFailed("the parts that were exported are gone; run it again")
    return send(state, export, prepared, server, token)


def send(
    state: BulkState, export: Export, prepared: Prepared, server: str, token: str | None
) -> AppendedParts:
    """Send the parts that no run has sent yet. Raises what `Appending.run` does."""
    stopping = Stopping(state)
    nodes = state.nodes_up_to(-1)[1]

    with (
        PhaseProgress("append", Amount(prepared.parts, nodes)) as progress,
        set_by_signals(stopping.interrupted),
    ):

        def waiting(reason: str) -> None:
            stopping.check()
            progress.waits(reason)

        with PublisherClient(server, token, waiting) as publisher:
            reexport = partial(
                export_again, database_url=export.database_url, blobs_url=export.blobs_url
            )
            appending = Appending(publisher, state, reexport, stopping)
            return appending.run(producer_of(export.bulk_id), prepared, progress.reached)


def _prepare(
    settings: Settings,
    location: Location,
    export: Export,
    stopping: Stopping,
    begins: Callable[[], None],
) -> None:
    def start() -> SparkSession:
        spark = ending.enter_context(running_spark(settings, location, "bulk"))
        begins()
        # Only now: Spark brings a handler of its own, which interrupts calls to the driver.
        ending.enter_context(set_by_signals(stopping.interrupted))
        return spark

    try:
        with ExitStack() as ending:
            prepare(start, location, export, stopping.check)
    except (BulkStopped, BulkCancelled) as error:
        raise type(error)(f"{error} while it exported: no part went out") from error
    except KeyboardInterrupt:
        raise BulkStopped("interrupted before it exported: no part went out") from None


def _require_same(prepared: Prepared, export: Export) -> None:
    if prepared.deep_path != export.deep_path:
        raise Conflict(
            f"{export.bulk_id} is of {prepared.deep_path}, not of {export.deep_path}; "
            "take another --id"
        )
    with reading(export.database_url, AUTHOR) as connection:
        days = (now_ms(connection) - prepared.snapshot_ms) // _DAY_MS
    if days >= RESUMED_WITHIN_DAYS:
        raise Conflict(
            f"{export.bulk_id} was exported {days} days ago, which is too long to go on with; "
            "begin anew with another --id"
        )


def export_again(part: StoredPart, database_url: str, blobs_url: str) -> StoredPart:
    """Export the range of `part` from a snapshot of its own, and store it as another package.

    Memory is constant. Raises `PathMissing` when the part begins with the deep path and that is
    gone, `TaskFailed`, `BlobStoreUnavailable`.
    """
    within = SubtreePart.between(part.deep_path, part.range_from, part.range_to)
    with author_snapshot(database_url) as snapshot:
        stored = store(snapshot.nodes(part.deep_path, within), blobs_url)
        epoch, sequence = snapshot.seen_epoch, snapshot.seen_sequence
        return replace(part, **stored, seen_epoch=epoch, seen_sequence=sequence)
