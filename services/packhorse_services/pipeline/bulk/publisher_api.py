"""The publisher as a bulk distribution uses it: a producer, and stored packages in its order."""

from collections.abc import Callable
from typing import Self, TypeVar

from packhorse.client.addresses import Addresses
from packhorse.client.blocking import Client
from packhorse.client.calls.producing import last_sequence
from packhorse.client.errors import (
    ClientError,
    Conflict,
    Misused,
    NoAnswer,
    NotFound,
    Refused,
    Unavailable,
)
from packhorse.client.patience import FOREVER, Patience
from packhorse.errors import Transient
from packhorse_services.pipeline import errors
from packhorse_services.pipeline.bulk.state import StoredPart

PATIENCE_S = 300.0
"""How long a publisher may be away; a full queue (429) is waited for as long as it takes."""

_UNKNOWN = "unknown-producer"
_STALE = ("stale-package", "stored-package-missing", "stored-package-differs")
_BEGUN_ELSEWHERE = (
    "the part is out already, under another token's name or at another agent; go on with the "
    "token and the publisher that it began with, or begin anew with another --id"
)


T = TypeVar("T")


class PublisherAway(Transient):
    """The publisher gave no answer for long; running it again goes on where it was."""


class StalePart(Exception):
    """The part has to be exported again: it may be older than what was published since (R6)."""


class PublisherClient:
    """One publisher agent. `waiting` gets the reason of each new attempt, and may raise."""

    def __init__(
        self, url: str, token: str | None, waiting: Callable[[str], None], *, timeout: float = 60.0
    ) -> None:
        """Connect to nothing yet. Raises `TaskRefused` for what is no URL, or no token."""
        where = Addresses({"publisher": url}, token)
        try:
            where.require("publisher")
        except Misused as error:
            raise errors.TaskRefused(
                f"{error}; see PACKHORSE_PUBLISHER_URL and its token"
            ) from error
        self._client = Client.of(where, timeout=timeout)
        self._patience = Patience(
            PATIENCE_S, FOREVER, waiting=lambda error: waiting(_in_one_line(error))
        )

    def register(self, producer: str) -> tuple[int, int]:
        """Register a producer, which fences an earlier run; return its epoch and last sequence.

        The sequence is `NOTHING_SENT` before the first. Raises `TaskRefused`, `PublisherAway`.
        """
        source = self._client.producer(producer, patience=self._patience)
        last = self._sent(source.register)
        return source.epoch, last

    def last_sequence(self, producer: str) -> int | None:
        """Return how far this token's producer has come; None when it has none of that name here.

        Asks once, and registers nothing: a run that is under way goes on. Raises `PublisherAway`
        when the publisher does not answer.
        """
        try:
            return self._client.run(last_sequence(producer))
        except ClientError as error:
            if isinstance(error, NotFound) and error.kind == _UNKNOWN:
                return None
            raise PublisherAway(_in_one_line(error)) from error

    def append(self, part: StoredPart, producer: str, epoch: int) -> None:
        """Have a stored package published under its part's number, once.

        Raises:
            StalePart: it must be exported again.
            Conflict: another run has registered the producer since, or the package is out
                under another one.
            TaskRefused, PublisherAway.
        """
        package = {
            "deep_path": part.deep_path,
            "range_from": part.range_from,
            "range_to": part.range_to,
            "package_id": part.package_id,
            "body_sha256": part.body_sha256,
            "body_length": part.body_length,
            "content_length": part.content_length,
            "node_count": part.node_count,
            "seen": {"epoch": part.seen_epoch, "sequence": part.seen_sequence},
        }
        source = self._client.producer(producer, patience=self._patience, epoch=epoch)
        self._sent(lambda: source.send_package(part.number, package))

    def _sent(self, send: Callable[[], T]) -> T:
        try:
            return send()
        except ClientError as error:
            raise _meaning(error) from error

    def __enter__(self) -> Self:
        """Return the publisher itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._client.close()


def _in_one_line(error: ClientError) -> str:
    return ". ".join(str(error).splitlines())


def _meaning(error: ClientError) -> Exception:
    """Return what an error says to a bulk distribution."""
    text = _in_one_line(error)
    if isinstance(error, NoAnswer | Unavailable):
        return PublisherAway(f"{text}; run it again to go on")
    kind = error.kind if isinstance(error, Refused) else ""
    if kind in _STALE:
        return StalePart(text)
    if kind == "package-id-used":
        return errors.Conflict(_BEGUN_ELSEWHERE)
    if isinstance(error, Conflict):
        return errors.Conflict(f"{text}; another run goes on with it, or run it again")
    return errors.TaskRefused(text)
