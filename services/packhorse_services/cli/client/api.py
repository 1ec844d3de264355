"""The HTTP API as the commands use it: answers as JSON, problems as exceptions."""

import enum
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from httpx_sse import ServerSentEvent, SSEError, connect_sse

from packhorse.errors import PackhorseError
from packhorse_services.cli.client.wording import in_words_of_commands


class Exit(enum.IntEnum):
    """Exit codes, for scripts."""

    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMEOUT = 124


def segment(name: str) -> str:
    """Return a name as one segment of a path, whatever characters it has."""
    return quote(name, safe="")


class CommandFailed(PackhorseError):
    """A command did not do what it was asked to; the text is for the user."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


class NoAnswer(CommandFailed):
    """Nobody answered, or not in time; whether the request has arrived is unknown."""


class Refused(CommandFailed):
    """The service answered with a problem; `kind` is the last part of its type."""

    def __init__(
        self, text: str, code: Exit, *, status: int, kind: str, retry_after_s: float | None
    ) -> None:
        super().__init__(text, code)
        self.status, self.kind, self.retry_after_s = status, kind, retry_after_s


_SILENCE_S = 45.0
"""A stream that is silent for longer is lost: there is a ping every 15 s."""

AWAY = frozenset({502, 503, 504})
"""Statuses of a service that may be there again soon, or of what stands before it."""
_AGAIN_S = 0.5
_NOT_SENT = "That of the stack on --data goes to this stack's own servers only."

_CODES = {404: Exit.NOT_FOUND, 409: Exit.CONFLICT, 412: Exit.CONFLICT, 422: Exit.USAGE}


class Api:
    """One service, one token."""

    def __init__(
        self, url: str, token: str | None, *, timeout: float = 30.0, option: str = "--server"
    ) -> None:
        """Connect to nothing yet; errors name the `option` that says the URL.

        Raises `CommandFailed` for what is no URL, and no token.
        """
        self._option = option
        headers = _sendable({"Authorization": f"Bearer {token}"} if token else {})
        self._client = httpx.Client(base_url=_checked(url), headers=headers, timeout=timeout)

    def get(self, path: str) -> Any:
        """Return the answer. Raises `CommandFailed`."""
        return self._send("GET", path).json()

    def get_tagged(self, path: str) -> tuple[Any, str]:
        """Return the answer and its ETag. Raises `CommandFailed`."""
        answer = self._send("GET", path)
        return answer.json(), answer.headers.get("ETag", "*")

    def get_bytes(self, path: str) -> tuple[bytes, str | None]:
        """Return the answer as it is, and where it goes on, if it does. Raises `CommandFailed`."""
        answer = self._send("GET", path)
        return answer.content, answer.links.get("next", {}).get("url")

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send `body` and return the answer. Raises `CommandFailed`."""
        return self._send("POST", path, json=dict(body), headers=_sendable(headers or {})).json()

    def put(self, path: str) -> Any:
        """Put nothing but the resource itself, and return the answer. Raises `CommandFailed`."""
        return self._send("PUT", path).json()

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge `body` into what is there and return the answer. Raises `CommandFailed`."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._send("PATCH", path, content=json.dumps(body), headers=headers).json()

    def delete(self, path: str) -> None:
        """Delete what is there. Raises `CommandFailed`."""
        self._send("DELETE", path)

    @contextmanager
    def follow(self, path: str, last_id: str = "") -> Iterator[Iterator[ServerSentEvent]]:
        """Open a stream of server-sent events, behind the one with `last_id`.

        Raises `CommandFailed`, inside the block too: `NoAnswer` when the connection is lost.
        """
        headers = _sendable({"Last-Event-ID": last_id} if last_id else {})
        timeout = httpx.Timeout(self._client.timeout.connect, read=_SILENCE_S)
        try:
            with connect_sse(self._client, "GET", path, headers=headers, timeout=timeout) as source:
                if not source.response.is_success:
                    source.response.read()
                    raise _refused(source.response, self._option)
                yield source.iter_sse()
        except httpx.ConnectError as error:
            raise self._nobody(error) from error
        except (httpx.TransportError, SSEError) as error:
            raise NoAnswer(f"{self._client.base_url} was lost ({error})") from error

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **arguments)
        except httpx.TimeoutException as error:
            raise NoAnswer(
                f"{self._client.base_url} gave no answer in time", Exit.TIMEOUT
            ) from error
        except httpx.TransportError as error:
            raise self._nobody(error) from error
        if answer.is_success:
            return answer
        raise _refused(answer, self._option)

    def _nobody(self, error: httpx.TransportError) -> NoAnswer:
        return NoAnswer(
            f"nobody answers at {self._client.base_url} ({error}); is it running, and is "
            f"{self._option} right?"
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()


def awaited(service: Api, path: str, deadline: float) -> Any:
    """Return the answer to a GET, asked again until `deadline` while the service is away.

    Who waits for what was accepted already loses nothing by that. `deadline` is of
    `time.monotonic`. Raises `CommandFailed`.
    """
    while True:
        try:
            return service.get(path)
        except CommandFailed as error:
            away = (
                error.status in AWAY if isinstance(error, Refused) else isinstance(error, NoAnswer)
            )
            if not away or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)


def gathered(service: Api, path: str, rows: str, limit: int, most: int) -> dict[str, Any]:
    """Return one document with up to `limit` elements of its list `rows`.

    A page holds `most` of them at the most, and may be shorter. Raises `CommandFailed`.
    """
    document: dict[str, Any] = service.get(_limited(path, min(limit, most)))
    found = document[rows]
    while document["next"] and len(found) < limit:
        document = service.get(_limited(document["next"], min(limit - len(found), most)))
        found += document[rows]
    return {**document, rows: found}


def _limited(path: str, limit: int) -> str:
    return str(httpx.URL(path).copy_set_param("limit", limit))


def origin(url: str) -> tuple[str, str, int | None]:
    """Return what two URLs of one server share. Raises `CommandFailed` for what is no URL."""
    parsed = _checked(url)
    host = "127.0.0.1" if parsed.host == "localhost" else parsed.host
    return parsed.scheme, host, parsed.port


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise CommandFailed(f"{url!r} is no URL of a server: {error}", Exit.USAGE) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise CommandFailed(
            f"{url!r} is no URL of a server; name one as http://host:port", Exit.USAGE
        )
    return parsed


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise CommandFailed(
                f"what is sent as {name} may hold printable ASCII characters only", Exit.USAGE
            )
    return dict(headers)


def refused_outcome(outcome: Mapping[str, Any]) -> Refused | None:
    """Return why a request of a batch was refused, or None when it was not."""
    problem = outcome.get("problem")
    if problem is None:
        return None
    status, wait_s = int(outcome["status"]), outcome.get("retry_after")
    return Refused(
        "\n".join(_lines_of(problem, status)),
        _CODES.get(status, Exit.FAILED),
        status=status,
        kind=str(problem["type"]).rpartition("/")[2],
        retry_after_s=None if wait_s is None else float(wait_s),
    )


def _refused(answer: httpx.Response, option: str) -> Refused:
    try:
        kind = str(answer.json()["type"]).rpartition("/")[2]
    except (ValueError, KeyError, TypeError):
        kind = ""
    wait = answer.headers.get("Retry-After", "")
    return Refused(
        _explain(answer, option),
        _CODES.get(answer.status_code, Exit.FAILED),
        status=answer.status_code,
        kind=kind,
        retry_after_s=float(wait) if wait.isascii() and wait.isdigit() else None,
    )


def _lines_of(problem: Mapping[str, Any], status: int) -> list[str]:
    """Return what a problem document says; what its detail says is not said again."""
    detail = in_words_of_commands(str(problem.get("detail") or ""))
    errors = problem.get("errors", [])
    lines = [f"{problem['title']} ({status})"]
    if detail and not (errors and detail.endswith("; see errors")):
        lines.append(detail)
    told = [
        (wrong.get("pointer"), in_words_of_commands(str(wrong.get("detail")))) for wrong in errors
    ]
    return lines + [f"{pointer}: {why}" for pointer, why in told if why != detail]


def _explain(answer: httpx.Response, option: str) -> str:
    """Put a problem document, or whatever came in its place, into words."""
    try:
        lines = _lines_of(problem := answer.json(), answer.status_code)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}"
    if not problem.get("detail") and answer.status_code == 404:  # nothing is missing but the route
        lines.append(f"Is {answer.request.url} the right service? {option} names another.")
    if answer.status_code == 401 and "Authorization" not in answer.request.headers:
        return f"{lines[0]}\nNo token was sent; name one with --token-file or --token. {_NOT_SENT}"
    if answer.status_code in (401, 403):
        lines.append("Name a token that allows it with --token-file or --token.")
    if "Retry-After" in answer.headers:
        lines.append(f"Try again in {answer.headers['Retry-After']} s.")
    return "\n".join(lines)
