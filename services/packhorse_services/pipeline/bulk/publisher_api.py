"""The publisher as a bulk distribution uses it: a producer, and stored packages in its order."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import stamina

from packhorse_services.pipeline.bulk.errors import BulkConflict, PublisherAway, PublisherRefused
from packhorse_services.pipeline.bulk.state import StoredPart
from packhorse_services.pipeline.errors import TaskRefused

PATIENCE_S = 300.0
"""How long a publisher may be away; a full queue (429) is waited for as long as it takes."""

NOTHING_SENT = -1

_WAIT_MAX_S = 10.0
_AWAY = (502, 503, 504)
_FULL = 429
_UNKNOWN = "unknown-producer"
_STALE = ("stale-package", "stored-package-missing", "stored-package-differs")
_BEGUN_ELSEWHERE = (
    "the part is out already, under another token's name or at another agent; go on with the "
    "token and the publisher that it began with, or begin anew with another --id"
)


class StalePart(Exception):
    """The part has to be exported again: it may be older than what was published since (R6)."""


class _Later(Exception):
    def __init__(self, text: str, *, full: bool, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.full, self.wait_s = full, wait_s


class PublisherClient:
    """One publisher agent. `waiting` is told why something is sent again, and may raise."""

    def __init__(
        self, url: str, token: str | None, waiting: Callable[[str], None], *, timeout: float = 60.0
    ) -> None:
        """Connect to nothing yet. Raises `TaskRefused` for what is no URL, or no token."""
        if _scheme(url) not in ("http", "https"):
            raise TaskRefused("name the publisher with PACKHORSE_PUBLISHER_URL=http://host:port")
        if token and not token.isascii():
            raise TaskRefused("the publisher's token has characters that no token has; look at it")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._waiting = waiting

    def register(self, producer: str) -> tuple[int, int]:
        """Register a producer, which fences an earlier run; return its epoch and last sequence.

        The sequence is `NOTHING_SENT` before the first. Raises `PublisherRefused`, `PublisherAway`.
        """
        answer = self._patiently("PUT", _path(producer))
        return answer["epoch"], _last_sequence(answer)

    def last_sequence(self, producer: str) -> int | None:
        """Return how far this token's producer has come; None when it has none of that name here.

        Asks once, and registers nothing: a run that is under way goes on. Raises `PublisherAway`
        when the publisher does not tell.
        """
        try:
            answer = self._client.get(_path(producer))
            if answer.status_code == 404 and _problem(answer)[0] == _UNKNOWN:
                return None
            return _last_sequence(answer.raise_for_status().json())
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            why = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
            raise PublisherAway(f"{self._client.base_url} does not tell it ({why})") from error

    def append(self, part: StoredPart, producer: str, epoch: int) -> None:
        """Have a stored package published under its part's number, once.

        Raises:
            StalePart: it must be exported again.
            BulkConflict: another run has registered the producer since, or the package is out
                under another one.
            PublisherRefused, PublisherAway.
        """
        body = {
            "deep_path": part.deep_path,
            "range_from": part.range_from,
            "range_to": part.range_to,
            "package_id": part.package_id,
            "body_sha256": part.body_sha256,
            "body_length": part.body_length,
            "content_length": part.content_length,
            "node_count": part.node_count,
            "seen": {"epoch": part.seen.epoch, "sequence": part.seen.sequence},
            "producer": {"name": producer, "epoch": epoch, "sequence": part.number},
        }
        self._patiently("POST", "/packages", body)

    def _patiently(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        began = time.monotonic()

        def again(error: Exception) -> bool | float:
            if not isinstance(error, _Later):
                return False
            if not error.full and time.monotonic() - began > PATIENCE_S:
                return False
            self._waiting(str(error))
            return True if error.wait_s is None else error.wait_s

        try:
            for attempt in stamina.retry_context(
                on=again, attempts=None, timeout=None, wait_initial=0.1, wait_max=_WAIT_MAX_S
            ):
                with attempt:
                    return _checked(self._sent(method, path, body))
        except _Later as error:
            raise PublisherAway(f"{error}; run it again to go on") from error
        raise AssertionError("a retry ends with an answer or an error")

    def _sent(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        try:
            return self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            away = f"the publisher at {self._client.base_url} gives no answer ({error})"
            raise _Later(away, full=False) from error

    def __enter__(self) -> Self:
        """Return the publisher itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the connection."""
        self._client.close()


def _scheme(url: str) -> str:
    try:
        return httpx.URL(url).scheme
    except httpx.InvalidURL:
        return ""


def _path(producer: str) -> str:
    return f"/producers/{quote(producer, safe='')}"


def _last_sequence(document: Mapping[str, Any]) -> int:
    last = document["last_sequence"]
    return NOTHING_SENT if last is None else int(last)


def _checked(answer: httpx.Response) -> Any:
    """Return the document of an answer, or raise what the answer means."""
    if answer.is_success:
        return answer.json()
    kind, text = _problem(answer)
    if answer.status_code == _FULL or answer.status_code in _AWAY or kind == "earlier-refused":
        wait = answer.headers.get("Retry-After", "")
        wait_s = float(wait) if wait.isascii() and wait.isdigit() else None
        raise _Later(text, full=answer.status_code == _FULL, wait_s=wait_s)
    if kind == "sequence-passed":
        return {"repeated": True}
    if kind in _STALE:
        raise StalePart(text)
    if kind == "package-id-used":
        raise BulkConflict(_BEGUN_ELSEWHERE)
    if answer.status_code == 409:
        raise BulkConflict(f"{text}; another run goes on with it, or run it again")
    raise PublisherRefused(text)


def _problem(answer: httpx.Response) -> tuple[str, str]:
    """Return the last part of a problem's type, and its words."""
    try:
        problem = answer.json()
        kind = str(problem["type"]).rpartition("/")[2]
        said = ". ".join(filter(None, (problem["title"], problem.get("detail"))))
        return kind, f"the publisher answered {answer.status_code}: {said}"
    except (ValueError, KeyError, TypeError):
        return "", f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}"
