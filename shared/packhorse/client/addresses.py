"""Where the services are and which token they get: from arguments, the environment, or a stack."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from packhorse.client.errors import Misused
from packhorse.client.exchange import ServiceName, sendable
from packhorse.client.stack_folder import NotRunning, RunningStack, StackFolder, default_folder

_VARIABLES: Mapping[ServiceName, str] = {
    "publisher": "PACKHORSE_SERVER",
    "content": "PACKHORSE_CONTENT_SERVER",
    "subscriber": "PACKHORSE_SUBSCRIBER_SERVER",
    "jobs": "PACKHORSE_JOBS_SERVER",
    "topology": "PACKHORSE_TOPOLOGY_SERVER",
    "pipeline": "PACKHORSE_PIPELINE_URL",
    "console": "PACKHORSE_CONSOLE_SERVER",
    "cleanup": "PACKHORSE_CLEANUP_SERVER",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The services' URLs, and the token that each of them gets.

    `stack` is the folder that says the rest; None when it is not to be looked at.
    """

    urls: Mapping[ServiceName, str] = field(default_factory=dict)
    token: str | None = None
    stack: StackFolder | None = None
    options: Mapping[ServiceName, str] = field(default_factory=dict)
    """What says a URL where no argument of a client does."""

    def url(self, service: ServiceName, subscriber: str = "") -> str:
        """Return a service's URL; in a stack, that of the subscriber where one is named.

        Raises `Misused` when nothing says it.
        """
        if service in self.urls:
            return checked_url(self.urls[service])
        argument = "url" if service == "publisher" else service
        given = f"no {argument}= was given, no {_VARIABLES[service]}"
        if option := self.options.get(service):
            given = f"no {option} was given"
        if self.stack is None:
            raise Misused(f"{given}: nothing says where the {service} service is")
        try:
            running = self.stack.running()
        except NotRunning as error:
            raise Misused(f"{given}, and {error}") from error
        url = running.subscribers.get(subscriber) if subscriber else getattr(running, service, None)
        if url is None:
            has = f"no {subscriber}" if subscriber else _instead_of(service, running)
            raise Misused(f"{given}, and the stack on {self.stack.root} has {has}")
        return str(url)

    def require(self, service: ServiceName) -> None:
        """Raise `Misused` unless the service's URL is known and both it and the token are good."""
        self.url(service)
        self.headers(service)

    def headers(self, service: ServiceName) -> dict[str, str]:
        """Return what authenticates a request. Raises `Misused` for what is no token."""
        token = self.token or self._token_of_stack(service)
        return sendable({"Authorization": f"Bearer {token}"}) if token else {}

    def _token_of_stack(self, service: ServiceName) -> str | None:
        return None if self.stack is None else stack_token(self.stack, self.urls.get(service))


def _instead_of(service: ServiceName, running: RunningStack) -> str:
    """Return what a stack has where no URL is the service's alone."""
    if service != "subscriber" or not running.subscribers:
        return f"no {service} service"
    known = ", ".join(f"{name} at {url}" for name, url in running.subscribers.items())
    return f"the subscribers {known}: name the URL of the one that is meant"


def named(url: str | None, others: Mapping[str, str | None]) -> dict[ServiceName, str | None]:
    """Return the URLs by their services. Raises `Misused` for a service that there is not."""
    if unknown := set(others) - set(_VARIABLES):
        raise Misused(f"there is no service {min(unknown)!r}, only {', '.join(_VARIABLES)}")
    return {name: others.get(name, url if name == "publisher" else None) for name in _VARIABLES}


def found(
    urls: Mapping[ServiceName, str | None],
    token: str | None,
    data: Path | str | None,
    environment: Mapping[str, str] = os.environ,
) -> Addresses:
    """Return what the arguments say, else the environment, else the stack's folder.

    Raises `Misused` for an empty token, a token file without one, and for what is no URL.
    """
    if token == "":
        raise Misused(
            "the token is empty; give one, or none to use the environment's or the stack's"
        )
    given = {name: urls.get(name) or environment.get(_VARIABLES[name]) for name in _VARIABLES}
    named = {name: checked_url(url) for name, url in given.items() if url}
    if token is None:
        token = environment.get("PACKHORSE_TOKEN")
    if not token and (file := environment.get("PACKHORSE_TOKEN_FILE")):
        token = read_token(Path(file))
    folder = data or environment.get("PACKHORSE_DATA") or default_folder(environment)
    return Addresses(named, token, StackFolder(Path(folder)))


def stack_token(stack: StackFolder, url: str | None) -> str | None:
    """Return the token of a stack for one of its own servers; `url` None is one of them.

    Others get None, and so does everybody where there is no token. Raises `Misused`.
    """
    if not stack.tokens.exists():
        return None
    if url is not None:
        try:
            running = stack.running()
        except NotRunning:
            return None
        if not _is_of(running, url):
            return None
    return read_token(stack.tokens)


def _is_of(stack: RunningStack, url: str) -> bool:
    return origin(url) in {origin(one) for one in stack.urls()}


def read_token(path: Path) -> str:
    """Return the token of a file: its only line, or the first one of a packhorse token file.

    Raises `Misused`.
    """
    try:
        text = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise Misused(f"the token file can't be read: {error}") from error
    if not text.startswith("{"):
        return text
    try:
        tokens = [entry["token"] for entry in json.loads(text)["tokens"] if entry.get("token")]
    except (ValueError, KeyError, TypeError) as error:
        raise Misused(f"{path} is no token file: {error}") from error
    if not tokens:
        raise Misused(f"{path} holds digests only; name the token itself")
    return str(tokens[0])


def checked_url(url: str) -> str:
    """Return a server's URL without a slash at its end. Raises `Misused` for what is none."""
    _parsed(url)
    return url.rstrip("/")


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return what two URLs of one server share."""
    parsed = _parsed(url)
    host = "127.0.0.1" if parsed.hostname == "localhost" else parsed.hostname
    return parsed.scheme, host, parsed.port


def _parsed(url: str) -> SplitResult:
    try:
        parsed = urlsplit(url)
        parsed.port  # noqa: B018 - reading it checks it
        (parsed.hostname or "").encode("idna")  # as a socket does, with another error
    except ValueError as error:
        raise Misused(f"{url!r} is no URL of a server: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.hostname or not url.isprintable():
        raise Misused(f"{url!r} is no URL of a server; name one as http://host:port")
    return parsed
