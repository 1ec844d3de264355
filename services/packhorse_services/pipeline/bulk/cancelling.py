"""Ending before the next part: by a signal to this run, or cancelled from anywhere."""

import threading

from packhorse.errors import Transient
from packhorse_services.pipeline.bulk.publisher_api import PublisherAway, PublisherClient
from packhorse_services.pipeline.bulk.state import BulkState, Prepared, producer_of
from packhorse_services.pipeline.errors import Conflict, NotThere, TaskRefused

_LOOK_S = 10.0


class BulkStopped(Transient):
    """Somebody has interrupted it; the text says how far it came."""


class BulkCancelled(Conflict):
    """Somebody has cancelled it; the text says how far it came."""


def cancel(
    state: BulkState, bulk_id: str, deep_path: str | None, server: str, token: str | None
) -> str:
    """Let no further part go out, and return what is true then; a run that is at work ends.

    Raises `NotThere` for one that nothing is known of, as long as its path is not named, and
    `Conflict` when it is of another path, or all of it is out.
    """
    prepared = state.prepared()
    if prepared is None:
        if deep_path is None:
            raise NotThere(
                f"there is no bulk distribution {bulk_id}; one that still exports is cancelled "
                "with its --deep PATH beside its --id"
            )
        state.cancel()
        return f"{bulk_id} is cancelled: it had exported nothing, and no part goes out"
    if deep_path not in (None, prepared.deep_path):
        raise Conflict(f"{bulk_id} is of {prepared.deep_path}, not of {deep_path}")
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
        raise Conflict(
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
    """Says whether to end. It is asked between parts, so that no answer is lost."""

    def __init__(self, state: BulkState) -> None:
        self._state = state
        self.interrupted = threading.Event()
        """Set to end this run."""

    def check(self) -> None:
        """Raise `BulkStopped` once this run is interrupted, `BulkCancelled` once the work is."""
        if self.interrupted.is_set():
            raise BulkStopped("interrupted")
        if self._state.cancelled():
            raise BulkCancelled("cancelled")
