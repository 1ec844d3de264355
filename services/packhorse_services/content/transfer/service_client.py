"""A service that is asked over HTTP until it answers: each question may be asked twice."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Self

import httpx
import stamina

from packhorse_services.content.transfer.refusals import Refusal

_PATIENCE_S = 120.0
_AGAIN = {408, 429, 502, 503, 504}
_CODES = {404: 3, 409: 4, 412: 4, 422: 2}
_CONNECTIONS = 8
_TIMEOUT = httpx.Timeout(60.0)


class ServerRefused(Refusal):
    """The service answered with a problem."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status, self.code = status, _CODES.get(status, 1)


class NoServer(Refusal):
    """Nobody answers there."""


class Service:
    """One service, one token. Safe to use from threads."""

    def __init__(self, url: str, token: str | None, *, patience_s: float = _PATIENCE_S) -> None:
        """Connect to nothing yet. Raises `Refusal` for what is no URL."""
        self._patience_s = patience_s
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise _misused(f"{url!r} is no URL of a server: {error}") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise _misused(f"{url!r} is no URL of a server; name one as http://host:port")
        if token and not (token.isascii() and token.isprintable()):
            raise _misused("a token holds printable ASCII characters only")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=_CONNECTIONS)
        self._client = httpx.Client(
            base_url=parsed, headers=headers, timeout=_TIMEOUT, limits=limits
        )

    def __enter__(self) -> Self:
        """Return the service itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._client.close()

    def chunks(self, url: str) -> Iterator[bytes]:
        """Yield what is behind a URL; a connection that breaks off is taken up where it was."""
        received = 0
        while True:
            before = received
            try:
                with self._opened(url, received) as answer:
                    for chunk in answer.iter_bytes():
                        received += len(chunk)
                        yield chunk
                    return
            except httpx.TransportError as error:
                if received == before:
                    raise OSError(f"the connection was lost ({error}); run it again") from error

    @contextmanager
    def _opened(self, url: str, start: int) -> Iterator[httpx.Response]:
        headers = {"Range": f"bytes={start}-"} if start else {}

        def send() -> httpx.Response:
            request = self._client.build_request("GET", url, headers=headers)
            answer = self._client.send(request, stream=True)
            if answer.is_error:
                answer.read()
            return answer

        try:
            answer = self._patiently(send)
        except ServerRefused as error:
            if error.status != 404:
                raise
            raise OSError(str(error)) from error
        with closing(answer):
            if start and answer.status_code != 206:
                raise OSError("the connection was lost, and the rest can't be had; run it again")
            yield answer

    def ask(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        """Return the answer to a request whose body can be sent again."""
        return self._patiently(lambda: self._client.request(method, url, **arguments))

    def put(self, url: str, content: Callable[[], Iterator[bytes]]) -> httpx.Response:
        """Return the answer to a PUT whose body is made anew for each try."""
        return self._patiently(lambda: self._client.put(url, content=content()))

    def _patiently(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Send again what may not have arrived. Raises `ServerRefused` and `NoServer`."""

        def again(error: Exception) -> bool | float:
            if isinstance(error, httpx.HTTPStatusError):
                wait_s = error.response.headers.get("Retry-After", "")
                if error.response.status_code not in _AGAIN:
                    return False
                return float(wait_s) if wait_s.isdigit() else True
            return isinstance(error, httpx.TransportError)

        attempts = stamina.retry_context(
            on=again, attempts=None, timeout=self._patience_s, wait_initial=0.2, wait_max=10.0
        )
        try:
            for attempt in attempts:
                with attempt:
                    answer = send()
                    answer.raise_for_status()
                    return answer
        except httpx.HTTPStatusError as error:
            raise ServerRefused(_explain(error.response), error.response.status_code) from error
        except httpx.TransportError as error:
            raise NoServer(
                f"nobody answers at {self._client.base_url} ({error}); is it running, and is "
                "--server right?"
            ) from error
        raise AssertionError("a retry ends with an answer or an error")


def _misused(text: str) -> Refusal:
    refusal = Refusal(text)
    refusal.code = 2
    return refusal


def _explain(answer: httpx.Response) -> str:
    """Put a problem document, or whatever came in its place, into words."""
    try:
        problem = answer.json()
        lines = [f"{problem['title']} ({answer.status_code})", str(problem.get("detail") or "")]
        lines += [str(wrong["detail"]) for wrong in problem.get("errors", [])]
    except (ValueError, KeyError, TypeError):
        lines = [f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}"]
    if answer.status_code in (401, 403):
        lines.append("name a token that allows it with --token or --token-file")
    elif answer.status_code == 404 and len(lines) > 1 and not lines[1]:
        lines.append("is --server a content service's URL?")
    return "; ".join(line for line in lines if line)
