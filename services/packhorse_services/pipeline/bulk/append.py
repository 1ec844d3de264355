"""Phase 2: the stored packages go to the publisher in the order of their parts, each once."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import stamina

from packhorse_services.pipeline.bulk.cancelling import Stopping
from packhorse_services.pipeline.bulk.errors import BulkCancelled, BulkStopped, PartBusy
from packhorse_services.pipeline.bulk.progress import Amount
from packhorse_services.pipeline.bulk.publisher_api import PublisherClient, StalePart
from packhorse_services.pipeline.bulk.state import BulkState, Prepared, StoredPart

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
            BulkConflict: another run has registered the producer, or has sent the package.
            PartBusy, PublisherAway, PublisherRefused, PathMissing.
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
            raise PartBusy(
                f"part {part.number} ({part.range_from or part.deep_path}) was changed and "
                f"distributed during each of {EXPORTS} exports; run it again to go on there"
            ) from error

    def _again(self, part: StoredPart) -> StoredPart:
        self._stopping.check()
        self._exported_again += 1
        return self._reexport(part)
