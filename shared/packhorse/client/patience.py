"""How long and how often a request is sent again."""

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from packhorse.client.errors import ClientError, NoAnswer, NotReached, Refused, Unavailable
from packhorse.client.exchange import (
    FULL,
    KEY_IN_PROGRESS,
    Answer,
    Effect,
    Operation,
    Pause,
    Request,
    T,
)
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

FOREVER = math.inf
_FIRST_S = 0.1
_LONGEST_S = 10.0
_QUIET_S = 5.0


def _nobody(_: ClientError) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Patience:
    """For `seconds` from the first failure on, or `full_s` where the service is full (429).

    `waiting` is called with the reason before each pause, and may raise; `outage` is told of what
    has failed for 5 s.
    """

    seconds: float
    full_s: float | None = None
    waiting: Callable[[ClientError], None] = _nobody
    random: Callable[[], float] = random.random
    outage: Outage | None = None

    def with_requests_of(self, operation: Operation[T]) -> Operation[T]:
        """Return the operation with each of its requests sent again as this says."""
        try:
            effect: Effect = next(operation)
            while True:
                try:
                    outcome = yield from self._done(effect)
                except ClientError as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    def _done(self, effect: Effect) -> Operation[Any]:
        if isinstance(effect, Request):
            return (yield from self._sent(effect))
        return (yield effect)

    def _sent(self, request: Request) -> Operation[Answer]:
        began: float | None = None
        tries = 0
        while True:
            try:
                answer: Answer = yield request
            except (NoAnswer, Refused) as error:
                if not _is_sent_again(request, error):
                    raise
                now: float = yield Pause()
                began = now if began is None else began
                wait_s = self._pause_s(error, tries)
                if now - began + wait_s > self._limit_s(request, error):
                    raise
                self._waits(error, now - began)
            else:
                if began is not None and self.outage is not None:
                    self.outage.ended()
                return answer
            tries += 1
            yield Pause(wait_s)

    def _waits(self, error: ClientError, tried_s: float) -> None:
        self.waiting(error)
        if self.outage is not None and tried_s >= _QUIET_S:
            self.outage.failed(error)

    def _limit_s(self, request: Request, error: ClientError) -> float:
        full = isinstance(error, Unavailable) and error.status == FULL
        limit_s = self.full_s if full and self.full_s is not None else self.seconds
        return max(limit_s, request.patience_s)

    def _pause_s(self, error: ClientError, tries: int) -> float:
        if isinstance(error, Refused) and error.retry_after_s is not None:
            return error.retry_after_s
        longest_s: float = min(_LONGEST_S, _FIRST_S * 2 ** min(tries, 20))
        return longest_s * (1 + self.random()) / 2


def telling(seconds: float, who: str) -> Patience:
    """Return patience that says in the log for what `who` waits, and why."""
    return Patience(seconds, outage=Outage(logger, f"{who} waits", f"{who} goes on"))


def _is_sent_again(request: Request, error: ClientError) -> bool:
    if isinstance(error, NotReached):
        return True
    if isinstance(error, Refused):
        if error.kind == KEY_IN_PROGRESS:
            return True
        if error.status not in request.again:
            return False
        return error.status == FULL or request.may_arrive_twice()
    return request.may_arrive_twice()
