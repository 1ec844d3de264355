"""From records of the status topic to outcomes; what can't be read is passed over (R9, R30)."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packhorse.messaging.api import Record
from packhorse.wire.codec import decode_status
from packhorse.wire.command_codec import decode_command_status
from packhorse.wire.messages import CommandStatusMessage, Status, StatusMessage
from packhorse.wire.record import Undecodable, message_type
from packhorse_services.publisher.outcomes.store import Key, Outcome, key_of

logger = logging.getLogger(__name__)

_MAX_NAME = 200
_MAX_REASON = 2_000
_LAST_MS = 253_402_300_799_000


@dataclass(slots=True)
class Told:
    """What some records tell of one publisher agent: of its packages, then of one command."""

    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    """The last decision of each package at each subscriber, IMPORTED included."""
    taken_back: set[Key] = field(default_factory=set)
    """Of which packages an earlier decision came too, or a later one came first."""
    command: CommandStatusMessage | None = None

    @property
    def imported(self) -> list[Outcome]:
        """The imports that only matter where an earlier decision is stored (R18)."""
        return [one for one in self.outcomes.values() if not self._is_stored(one)]

    @property
    def stored(self) -> list[Outcome]:
        """The outcomes that leave a row: imports only when they have taken something back."""
        return [one for one in self.outcomes.values() if self._is_stored(one)]

    def _is_stored(self, outcome: Outcome) -> bool:
        return outcome.status is not Status.IMPORTED or key_of(outcome) in self.taken_back


def read_statuses(records: Iterable[Record], agent: str, journal_id: str) -> Iterator[Told]:
    """Yield what `records` tell, in order; `journal_id` is meant by a status that names no log."""
    told = Told()
    for record in records:
        try:
            if message_type(record.headers) == CommandStatusMessage.__name__:
                command = decode_command_status(record.headers, record.value)
                if command.publisher_agent == agent:
                    told.command = command
                    yield told
                    told = Told()
            else:
                status = decode_status(record.headers, record.value)
                _add_status(told, status, agent, journal_id)
        except Undecodable as error:
            logger.warning("no status", extra={"offset": record.offset, "error": str(error)})
    yield told


def _add_status(told: Told, status: StatusMessage, agent: str, journal_id: str) -> None:
    if status.publisher_agent != agent:
        return
    outcome = _outcome(status, journal_id)
    if not _is_sound(outcome):
        logger.warning("a status of nobody", extra={"subscriber": outcome.subscriber[:_MAX_NAME]})
        return
    key = key_of(outcome)
    before = told.outcomes.setdefault(key, outcome)
    if outcome.status is not before.status:
        told.taken_back.add(key)
    if outcome.decided_ms > before.decided_ms:
        told.outcomes[key] = outcome


def _outcome(status: StatusMessage, journal_id: str) -> Outcome:
    return Outcome(
        subscriber=status.subscriber,
        journal_id=_clean(status.journal_id, _MAX_NAME) or journal_id,
        offset=status.offset,
        package_id=_clean(status.package_id, _MAX_NAME),
        status=status.status,
        attempts=max(0, status.attempts),
        reason=_clean(status.reason, _MAX_REASON),
        command_id=_clean(status.command_id, _MAX_NAME),
        decided_ms=status.decided_ms if 0 < status.decided_ms <= _LAST_MS else 0,
    )


def _is_sound(outcome: Outcome) -> bool:
    name = outcome.subscriber
    return 0 < len(name) <= _MAX_NAME and name.isprintable() and outcome.offset >= 0


def _clean(text: str, limit: int) -> str:
    """Return what Postgres can hold of a text."""
    return text.replace("\0", "\ufffd")[:limit]
