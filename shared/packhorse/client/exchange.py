"""Requests, answers and operations: what a client does, without the sending.

An operation is a generator. It yields a `Request` and is given the `Answer`, or has the error
raised in it; or it yields a `Pause` and is given the time afterwards; or `Work`, whose result it is
given.
"""

import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from packhorse.client.errors import Misused, NoAnswer, Unreadable
from packhorse.content.node import InvalidPath, check_path

ServiceName = Literal[
    "publisher", "content", "subscriber", "jobs", "topology", "pipeline", "console", "cleanup"
]

AWAY = frozenset({502, 503, 504})
"""Statuses of a service that may be there again soon, or of what stands before it."""
FULL = 429
KEY_IN_PROGRESS = "key-in-progress"
"""The kind of a refusal: an earlier try with the same key has not ended, whose answer it gets."""
TOO_SLOW = 408
"""The body came too slowly."""

_IDEMPOTENT = ("PUT", "DELETE")
_CONDITIONS = ("If-Match", "If-None-Match")


class Document(dict[str, Any]):
    """A document of the API: a dictionary, whose fields are attributes as well (`queue.state`).

    A field with the name of one of a dictionary's methods is had as an item only.
    """

    def __getattr__(self, name: str) -> Any:
        """Return a field. Raises `AttributeError` when the document has none of that name."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the document has no {name!r}, only {', '.join(self)}") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; names of headers are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def following(self) -> str | None:
        """Where a list goes on, if it does (RFC 8288)."""
        url, _, relation = self.headers.get("link", "").partition(">")
        return url.lstrip("<") if 'rel="next"' in relation else None

    def document(self, numbers: Callable[[str], Any] | None = None) -> Any:
        """Return what it holds, its numbers as `numbers` reads them, or else as Python does.

        Raises `Unreadable` for what is no JSON.
        """
        try:
            return json.loads(
                self.content, object_hook=Document, parse_float=numbers, parse_int=numbers
            )
        except ValueError as error:
            raise Unreadable(f"{self.url} answered with what is no JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Request:
    """One request to one service.

    `repeatable` says that it does no harm when it arrives twice; None: its method says so, unless
    it is for one state only (`If-Match`, `If-None-Match`). `patience_s` is how long it is sent
    again where the client would not be as patient, `again` on which statuses.
    """

    method: str
    path: str
    service: ServiceName = "publisher"
    body: Any = None
    content: bytes | Callable[[], Iterator[bytes]] | None = None
    """Where it is long: what yields its chunks, anew for each try."""
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool | None = None
    patience_s: float = 0.0
    again: frozenset[int] = AWAY | {FULL, TOO_SLOW}
    judge: Callable[[Answer], Exception | None] = lambda _: None
    """Finds the refusal in an answer that is none by its status."""
    subscriber: str = ""
    """Whose service it is, where a stack has one for each."""

    def may_arrive_twice(self) -> bool:
        """Return whether it can be sent again when nobody knows whether it has arrived."""
        if self.repeatable is not None:
            return self.repeatable
        is_conditional = any(name in self.headers for name in _CONDITIONS)
        return self.method == "GET" or (self.method in _IDEMPOTENT and not is_conditional)

    def sendable_headers(self) -> dict[str, str]:
        """Return what is sent beside the body. Raises `Misused` for what no header can hold."""
        kind = {} if self.body is None else {"Content-Type": "application/json"}
        return {**kind, **sendable(self.headers)}

    def payload(self) -> bytes | Iterator[bytes] | None:
        """Return the body as it is sent. Raises `Misused` for what is no JSON."""
        if self.body is None:
            return self.content() if callable(self.content) else self.content
        try:
            return json.dumps(self.body, allow_nan=False).encode()
        except (ValueError, TypeError) as error:
            raise Misused(f"the request can't be sent as JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Pause:
    """Some seconds without doing anything; the operation is given the monotonic time afterwards."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What takes long and asks no service; the operation is given what it returns.

    `AsyncClient` does it in a thread.
    """

    do: Callable[[], Any]


T = TypeVar("T")
Effect: TypeAlias = Request | Pause | Work
Operation: TypeAlias = Generator[Effect, Any, T]


def answered_by(request: Request) -> Operation[Answer]:
    """Send a request and return the answer as it came."""
    answer: Answer = yield request
    return answer


def requested(request: Request) -> Operation[Document]:
    """Send a request and return the document that it is answered with."""
    answer: Answer = yield request
    document: Document = answer.document()
    return document


def repeated_by_key(request: Request, what: str) -> Operation[Document]:
    """Send a request as `answered_by_key` does, and return the document of its answer."""
    answer = yield from answered_by_key(request, what)
    document: Document = answer.document()
    return document


def answered_by_key(request: Request, what: str) -> Operation[Answer]:
    """Send a request with an idempotency key; `what` is what the key lets happen once only.

    Raises `NoAnswer` with the key, which a later call may take.
    """
    try:
        return (yield from answered_by(request))
    except NoAnswer as error:
        key = request.headers["Idempotency-Key"]
        text = f"{error}\nNobody knows whether it was {what}; with key={key!r} it is {what} once."
        raise type(error)(text, key) from error


def done(request: Request) -> Operation[None]:
    """Send a request whose answer says nothing more."""
    yield request


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers. Raises `Misused` for what none can hold."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise Misused(f"what is sent as {name} may hold printable ASCII characters only")
    return dict(headers)


def segment(name: str) -> str:
    """Return a name as one segment of a path, whatever characters it has.

    Raises `Misused` for an empty one, `.` and `..`, which name another resource on their way, for
    what is no Unicode, and for what is no text, such as a document in the place of its id.
    """
    if not isinstance(name, str):
        raise Misused(f"a name or id is a text, no {type(name).__name__}")
    if name in ("", ".", ".."):
        raise Misused(f"{name!r} is no name")
    with _encoding():
        return quote(name, safe="")


def quoted(path: str) -> str:
    """Return the path of a node as it follows a route. Raises `Misused` for what is none (R29)."""
    try:
        return quote(check_path(path))
    except InvalidPath as error:
        raise Misused(str(error)) from None


def with_query(path: str, /, **values: Any) -> str:
    """Return a path with the values that are not None as its query.

    Raises `Misused` for what is no Unicode.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        return path
    with _encoding():
        return f"{path}{'&' if '?' in path else '?'}{urlencode(given, doseq=True)}"


@contextmanager
def _encoding() -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:  # bytes of a command line that are no UTF-8
        raise Misused(f"{error.object!r} can't be sent: it is no Unicode") from None


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None, as a body has them."""
    return {name: value for name, value in values.items() if value is not None}


def gathered(
    path: str,
    rows: str,
    limit: int,
    most: int,
    service: ServiceName,
    *,
    enough: Callable[[list[Any]], bool] = lambda _: False,
) -> Operation[Document]:
    """Return one document with up to `limit` elements of its list `rows`.

    A page holds `most` of them at the most, and may be shorter. None is asked for once those that
    were read are `enough`.
    """
    document = yield from _page(path, min(limit, most), service)
    found = document[rows]
    while document["next"] and len(found) < limit and not enough(found):
        document = yield from _page(document["next"], min(limit - len(found), most), service)
        found += document[rows]
    return Document({**document, rows: found})


def listed(
    path: str, rows: str, limit: int, most: int, service: ServiceName
) -> Operation[list[Document]]:
    """Return the rows of `gathered` alone."""
    found: list[Document] = (yield from gathered(path, rows, limit, most, service))[rows]
    return found


def _page(path: str, limit: int, service: ServiceName) -> Operation[Document]:
    head, _, query = path.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith("limit=")]
    url = f"{head}?{'&'.join([*parts, f'limit={limit}'])}"
    return (yield from requested(Request("GET", url, service)))


def deadline_in(seconds: float | None) -> Operation[float]:
    """Return when so many seconds will have passed; never for None. Raises `Misused` for a bool."""
    require_seconds(seconds)
    now: float = yield Pause()
    return math.inf if seconds is None else now + seconds


def require_seconds(wait: float | None) -> None:
    """Raise `Misused` for True, which would be a wait of one second."""
    if isinstance(wait, bool):
        raise Misused("wait= is seconds, such as 60")
