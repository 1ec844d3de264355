"""What goes wrong between a client and a service: one tree, one `except` takes all of it."""

from collections.abc import Mapping
from typing import Any

from packhorse.errors import PackhorseError


class ClientError(PackhorseError):
    """A call did not do what it was asked to; the text says why and what to do."""


class Misused(ClientError):
    """The call itself is wrong, or nothing says where the service is; nothing was sent."""


class NotInTime(ClientError):
    """What was waited for has not happened yet; what was accepted goes on.

    `document` is what was known last.
    """

    def __init__(self, text: str, document: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.document = document


class Rejected(ClientError):
    """A subscriber has rejected a command; the text has its reason."""


class Unreadable(ClientError):
    """A service has answered with what is no answer of its API."""


class NoAnswer(ClientError):
    """Nobody answered; whether the request has arrived is unknown.

    `key` is the idempotency key to repeat it with, where it had one.
    """

    def __init__(self, text: str, key: str | None = None) -> None:
        super().__init__(text)
        self.key = key


class NotReached(NoAnswer):
    """Nobody took the connection: the request has not arrived."""


class NoAnswerInTime(NoAnswer):
    """The answer took longer than the time-out."""


class Refused(ClientError):
    """The service answered with a problem.

    `status` is that of HTTP, `problem` the document (RFC 9457; empty when there was none), `kind`
    the last part of its type, `advice` what to do, `retry_after_s` when to ask again, if it says.
    """

    def __init__(
        self,
        text: str,
        status: int,
        problem: Mapping[str, Any] | None = None,
        *,
        advice: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__("\n".join(filter(None, (text, advice))))
        self.status, self.problem = status, dict(problem or {})
        self.advice, self.retry_after_s = advice, retry_after_s

    @property
    def kind(self) -> str:
        """The last part of the problem's type, such as `key-reused`; "" without one."""
        return str(self.problem.get("type", "")).rpartition("/")[2]


class Invalid(Refused):
    """The request is wrong (400, 413, 415, 422): it has to be another one."""


class Denied(Refused):
    """The token is missing, wrong, or does not allow this (401, 403)."""


class NotFound(Refused):
    """There is no such thing (404).

    Of what was to be removed: an earlier try may have removed it whose answer was lost.
    """


class Conflict(Refused):
    """It is no longer as the request says, or its time has passed (409, 410, 412)."""


class Fenced(Conflict):
    """Somebody else has registered the producer since: stop, for the other one goes on."""


class Unavailable(Refused):
    """The service can't do it now (429, 502, 503, 504); the same request may be taken later."""


def refusal_class(status: int, kind: str) -> type[Refused]:
    """Return the class of what is raised for a problem."""
    if kind == "producer-fenced":
        return Fenced
    classes = {
        Invalid: (400, 413, 415, 422),
        Denied: (401, 403),
        NotFound: (404,),
        Conflict: (409, 410, 412),
        Unavailable: (429, 502, 503, 504),
    }
    return next((one for one, statuses in classes.items() if status in statuses), Refused)
