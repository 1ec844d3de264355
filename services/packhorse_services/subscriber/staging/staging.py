"""Staging: a package is imported here once another subscriber, the golden one, has imported it.

ADR 0014 says why. This module decides; `follower` passes on what the golden one reports.
"""

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from packhorse.clock import Clock, SystemClock
from packhorse.wire.actions import is_probe
from packhorse.wire.messages import (
    DiscoveryMessage,
    Status,
    StatusMessage,
    SubscriberState,
    SubscriptionState,
)
from packhorse_services.subscriber.journal.arrivals import Arrival, Mark, entry_of
from packhorse_services.subscriber.journal.failures import printable
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.staging.refusals import Refusals
from packhorse_services.subscriber.staging.staged_subscription import StagedSubscription

_STRAYED = (SubscriptionState.JOURNAL_MISMATCH, SubscriptionState.GAP)

_REASON_CHARACTERS = 200
_SILENT_S = 30.0
_SILENCE_STEP_S = 10
"""A reason that changes is announced, and nobody wants that each second."""
_WAY_OUT = "which ends only by a clear, or when this subscriber is started without wait_for"


class StagingVerdict(enum.Enum):
    """What may be done with a package now."""

    ACCEPT = "ACCEPT"
    SKIP = "SKIP"
    WAIT = "WAIT"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, and one line that says why, for SKIP and WAIT."""

    verdict: StagingVerdict
    reason: str = ""


ACCEPTED = Ruling(StagingVerdict.ACCEPT)
_UNTOLD = Ruling(StagingVerdict.ACCEPT)
"""Accepted for lack of a status: only if the log is the one that the golden one read."""

PackageAt = Callable[[int], str | None]
"""Returns the id of the package that the log has at an offset now; None when it is not known."""


class OpenGate:
    """The gate of a subscriber that waits for nobody."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Do nothing: the ruling never changes."""

    def ruling(self, position: Position, arrival: Arrival) -> Ruling:  # noqa: ARG002
        """Accept."""
        return ACCEPTED


class Staging:
    """The gate of a subscriber that waits for another; safe to use from several threads.

    A status of the golden subscriber for exactly this agent, journal, offset and package decides;
    of several the last in the status topic does. Without a status a package is accepted only when
    the golden subscriber is certainly past it and certainly did not report it: it was a repeat.
    That it is past proves nothing of a log that was cut and written again (R24, R31), so the log
    must hold what the golden subscriber says that it has processed last.
    """

    def __init__(
        self, golden: str, clock: Clock | None = None, package_at: PackageAt | None = None
    ) -> None:
        self.golden, self._package_at = golden, package_at
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._subscriptions: dict[str, StagedSubscription] = {}
        self._reported: DiscoveryMessage | None = None
        self._reported_at = 0.0
        self._refused = Refusals()
        self._covers_ms: float = float("inf")
        self._wanted, self._read = 0, 0
        self._requested = threading.Event()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a ruling may have changed."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """Notify the listeners."""
        for listener in self._listeners:
            listener()

    def ruling(self, position: Position, arrival: Arrival) -> Ruling:
        """Return what may be done with one of the subscription's packages above its position.

        Raises what the journal raises when it has to be asked.
        """
        with self._lock:
            ruling, state = self._rule(position, arrival), _state_of(self._reported, position)
        if ruling is _UNTOLD and state is not None and not self._is_in_log(state):
            ruling = _wait(
                f"waits for {self.golden}, whose last package {state.package_id} is not at "
                f"offset {state.offset} of this journal{self._silence()}"
            )
        if ruling.verdict is not StagingVerdict.ACCEPT:
            entry = entry_of(arrival)
            if entry is not None and (is_probe(entry.action) or not entry.is_for(self.golden)):
                return ACCEPTED  # it changes nothing here, or is not for the golden one to try
        return ruling

    def is_past(self, agent: str, journal_id: str, offset: int) -> bool:
        """Return whether the golden one is certainly past an offset, all up to it reported."""
        self._requested.set()
        with self._lock:
            state = _state_of(self._reported, Position(agent, journal_id, 0, Mark(offset, "")))
        return state is not None and state.state not in _STRAYED and state.settled_offset >= offset

    def _rule(self, position: Position, arrival: Arrival) -> Ruling:
        staged = self._subscription_at(position)
        if self._read != self._wanted:
            return _wait(f"waits for {self.golden}, whose statuses are being read")
        state = _state_of(self._reported, position)
        if state is not None and state.state in _STRAYED:  # offsets may have been used again (R24)
            return _wait(f"waits for {self.golden}{self._trouble(state)}")
        status, of_this = staged.status_of(arrival.mark)
        if status is None:
            return self._undecided(position, staged, arrival)
        if not of_this:
            return _wait(
                f"{self.golden} reported {status.value} of another package at {arrival.offset}: "
                f"the journal was restored, or is another one; waits until {self.golden} has "
                "imported this one, for a clear, or to be started without wait_for"
            )
        if status is Status.IMPORTED:
            return ACCEPTED
        return self._skip(status, staged.reasons.get(arrival.offset, ""))

    def _subscription_at(self, position: Position) -> StagedSubscription:
        """Return the subscription, after it has asked for a reading when it needs one."""
        staged = self._subscriptions.get(position.agent)
        if (
            staged is None
            or staged.journal_id != position.journal_id
            or position.offset < staged.decided.base
            or (staged.decided.horizon is not None and staged.decided.has_room())
        ):
            staged = self._subscriptions[position.agent] = StagedSubscription(position.journal_id)
            self._wanted += 1
            self._requested.set()
        if position.offset > staged.decided.base:
            staged.forget(position.offset)
        return staged

    def _undecided(
        self, position: Position, staged: StagedSubscription, arrival: Arrival
    ) -> Ruling:
        """Rule without a status, which only a proof that there is none can make a yes."""
        state = _state_of(self._reported, position)
        if state is None or not (self._reported and self._reported.editable):
            return _wait(self._stranger(position))
        if state.started_offset >= arrival.offset:
            return _wait(f"{self.golden} began behind offset {arrival.offset}, {_WAY_OUT}")
        read_up_to = min(staged.proven, state.settled_offset)
        if read_up_to < arrival.offset or not staged.decided.reaches(arrival.offset):
            trouble = self._trouble(state)
            return _wait(f"waits for {self.golden} to import offset {arrival.offset}{trouble}")
        if arrival.record is None or arrival.record.time_ms < self._covers_ms:
            return _wait(
                f"the status topic has forgotten what {self.golden} did at offset "
                f"{arrival.offset}, {_WAY_OUT}"
            )
        return self._silent(arrival)

    def _silent(self, arrival: Arrival) -> Ruling:
        """Rule on what the golden subscriber is past without a word: it was a repeat."""
        refused = self._refused.get(arrival.mark.package_id)
        if refused:
            return self._skip(*refused)
        if self._refused.may_have(arrival.mark.package_id):
            return _wait(
                f"{self.golden} refused so many packages that the one at offset {arrival.offset} "
                f"may be a repeat of one, {_WAY_OUT}"
            )
        return _UNTOLD

    def _is_in_log(self, state: SubscriberState) -> bool:
        """Return whether the log holds what the golden subscription has processed last.

        Asked each time: what is known from before may be of the log as it was before.
        """
        if self._package_at is None or not state.package_id:  # nobody says what was there
            return True
        return self._package_at(state.offset) == state.package_id

    def _stranger(self, position: Position) -> str:
        if self._reported is None:
            return f"waits for {self.golden}, which has not announced itself"
        if not self._reported.editable:
            why = "reports no import: make it editable"
        else:
            why = f"does not follow {position.agent} in this journal"
        return f"waits for {self.golden}, which {why}{self._silence()}"

    def _trouble(self, state: SubscriberState) -> str:
        """Return what keeps the golden subscription, by what it says or by its silence."""
        silence = self._silence()
        if state.state in (SubscriptionState.RUNNING, SubscriptionState.IDLE):
            return silence
        error = printable(state.last_error, _REASON_CHARACTERS)
        became = f"{'was' if silence else 'is'} {state.state.value}"
        return f", which {became}{': ' if error else ''}{error}{silence}"

    def _silence(self) -> str:
        silent = self._clock.monotonic() - self._reported_at
        if silent < _SILENT_S:
            return ""
        shown = int(silent) // _SILENCE_STEP_S * _SILENCE_STEP_S
        return f"; {self.golden} has been silent for {shown} s"

    def _skip(self, status: Status, reason: str) -> Ruling:
        because = f": {reason}" if reason else ""
        return Ruling(StagingVerdict.SKIP, f"{self.golden} reported {status.value}{because}")

    # What the follower reports.

    def wait_until_wanted(self, timeout: float) -> bool:
        """Return whether a subscription has asked, at the latest after `timeout` seconds."""
        return self._requested.wait(timeout)

    def wanted(self) -> int:
        """Return the number of the reading of the status topic that is needed."""
        with self._lock:
            return self._wanted

    def covers(self, since_ms: float) -> None:
        """Note that the status topic was read from this time of its clock on, 0 for all of it."""
        with self._lock:
            self._covers_ms = since_ms

    def status(self, message: StatusMessage) -> None:
        """Take a status of the golden subscriber, in the status topic's order."""
        if message.left_out:  # it will never be tried there, and so waits for nobody
            message = replace(message, status=Status.IMPORTED)
        reason = printable(message.reason, _REASON_CHARACTERS)
        with self._lock:
            self._refused.take(message.package_id, message.status, reason)
            staged = self._subscriptions.get(message.publisher_agent)
            if staged is not None and staged.journal_id == message.journal_id:
                staged.take(message, reason)

    def announced(self, message: DiscoveryMessage, age_s: float = 0.0) -> None:
        """Take an announcement of the golden subscriber, the newest so far, made `age_s` ago."""
        with self._lock:
            self._reported, self._reported_at = message, self._clock.monotonic() - age_s

    def read_to_end(self, wanted: int, message: DiscoveryMessage | None) -> None:
        """Note that reading `wanted` holds every status that was sent before `message` was."""
        with self._lock:
            if wanted != self._wanted:
                return
            self._read = wanted
            for state in message.states if message else ():
                staged = self._subscriptions.get(state.publisher_agent)
                if staged is not None and staged.journal_id == state.journal_id:
                    staged.proven = state.settled_offset


Gate = Staging | OpenGate
"""Decides which packages a subscription may import."""


def _wait(reason: str) -> Ruling:
    return Ruling(StagingVerdict.WAIT, reason)


def _state_of(message: DiscoveryMessage | None, position: Position) -> SubscriberState | None:
    for state in message.states if message else ():
        if (state.publisher_agent, state.journal_id) == (position.agent, position.journal_id):
            return state
    return None
