"""Ending before the next part: by a signal to this run, or cancelled from anywhere."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from packhorse_services.pipeline.bulk.errors import (
    BulkCancelled,
    BulkConflict,
    BulkStopped,
    BulkUnknown,
    PublisherAway,
)
from packhorse_services.pipeline.bulk.publisher_api import PublisherClient
from packhorse_services.pipeline.bulk.state import BulkState, Prepared, producer_of
from packhorse_services.pipeline.errors import TaskRefused

_LOOK_S = 10.0


def cancel(
    state: BulkState, bulk_id: str, deep_path: str | None, server: str, token: str | None
) -> str:
    """Let no further part go out, and return what is true then; a run that is at work ends.

    Raises `BulkUnknown` for one that nothing is known of, as long as its path is not named, and
    `BulkConflict` when it is of another path, or all of it is out.
    """
    prepared = state.prepared()
    if prepared is None:
        if deep_path is None:
            raise BulkUnknown(
                f"there is no bulk distribution {bulk_id}; one that still exports is cancelled "
                "with its --deep PATH beside its --id"
            )
        state.cancel()
        return f"{bulk_id} is cancelled: it had exported nothing, and no part goes out"
    if deep_path not in (None, prepared.deep_path):
        raise BulkConflict(f"{bulk_id} is of {prepared.deep_path}, not of {deep_path}")
    state.cancel()  # first: a publisher that does not answer would let parts go out meanwhile
    return f"{bulk_id} is cancelled: {_said(bulk_id, prepared, server, token)}"


def _said(bulk_id: str, prepared: Prepared, server: str, token: str | None) -> str:
    try:
        out = _out(bulk_id, server, token)
    except (PublisherAway, TaskRefused) as error:
        return f"no further part goes out; how many are out is not known: {error}"
    if out is None:
        return "no further part goes out, and this publisher knows of none that this token sent"
    if out == prepared.parts:
        raise BulkConflict(
            f"all {out} parts of {bulk_id} are out already, and stay; nothing is left to cancel"
        )
    return (
        f"{out} of {prepared.parts} parts are out, and stay; a run that is at work ends before its "
        "next part"
    )


def is_out(bulk_id: str, prepared: Prepared, server: str, token: str | None) -> bool:
    """Return whether the publisher says that all parts are out; to cancel them changes nothing."""
    try:
        return _out(bulk_id, server, token) == prepared.parts
    except (PublisherAway, TaskRefused):
        return False


def _out(bulk_id: str, server: str, token: str | None) -> int | None:
    """Return how many parts are out, or None when the publisher knows of no such producer."""
    with PublisherClient(server, token, lambda _reason: None, timeout=_LOOK_S) as publisher:
        last = publisher.last_sequence(producer_of(bulk_id))
    return None if last is None else last + 1


class Stopping:
    """Says whether to end. Signals are handled between parts, so that no answer is lost."""

    def __init__(self, state: BulkState) -> None:
        self._state = state
        self._interrupted = False

    def check(self) -> None:
        """Raise `BulkStopped` once somebody has interrupted this run, `BulkCancelled` the work."""
        if self._interrupted:
            raise BulkStopped("interrupted")
        if self._state.cancelled():
            raise BulkCancelled("cancelled")

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as the request to end; a second one ends at once."""
        before = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
