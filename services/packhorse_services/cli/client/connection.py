"""Which service a command talks to, and with which token."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packhorse_services.cli.client.api import Api, CommandFailed, Exit, origin
from packhorse_services.cli.client.data_directory import DataDirectory, NotRunning, RunningStack
from packhorse_services.cli.client.settings import default_data


@dataclass(frozen=True, slots=True)
class Connection:
    """What the user said before the command; the rest is found in the data folder."""

    data: Path | None = None
    server: str | None = None
    token_text: str | None = None
    token_file: Path | None = None

    @property
    def directory(self) -> DataDirectory:
        """The folder of the embedded stack, which need not exist."""
        return DataDirectory(self.data or default_data())

    def publisher(self, timeout: float = 30.0) -> Api:
        """Return the publisher's API. Raises `CommandFailed` when none is known."""
        return Api(self.publisher_url(), self.token(), timeout=timeout)

    def publisher_url(self) -> str:
        """Return where the publisher is. Raises `CommandFailed` when nothing says so."""
        return self._service("publisher")

    def topology(self) -> Api:
        """Return the topology service's API. Raises `CommandFailed` when none is known."""
        return Api(self._service("topology"), self.token())

    def jobs(self, timeout: float = 30.0) -> Api:
        """Return the jobs service's API. Raises `CommandFailed` when none is known."""
        return Api(self._service("jobs"), self.token(), timeout=timeout)

    def token(self) -> str | None:
        """Return the token to send; None where there is none, for a server that asks for none."""
        if self.token_text:
            return self.token_text
        if self.token_file is not None:
            return read_token(self.token_file)
        if not self.directory.tokens.exists() or not self._is_of_stack():
            return None
        return read_token(self.directory.tokens)

    def no_token(self) -> str:
        """Say where a token was looked for."""
        if self.server and self.directory.tokens.exists():
            return (
                f"no token is known for {self.server}, which is none of the stack's on "
                f"{self.directory.root}; name one with --token-file"
            )
        return (
            f"no token is known: there is no {self.directory.tokens}; start a stack with "
            f"packhorse up --data {self.directory.root}, name another folder with --data, or a "
            "token with --token-file"
        )

    def require_running(self) -> None:
        """Raise `CommandFailed` unless the stack on the data folder runs."""
        self._running()

    def _is_of_stack(self) -> bool:
        """Tell whether the server, if one is named, is one of the stack's that runs here."""
        if not self.server:
            return True
        try:
            running = self.directory.running()
        except NotRunning:
            return False
        urls = (
            *(running.publisher, running.content, running.cleanup),
            *(running.topology, running.jobs),
            *running.subscribers.values(),
        )
        return origin(self.server) in {origin(url) for url in urls}

    def journal(self, url: str | None) -> str:
        """Return `url`, or the journal of the stack. Raises `CommandFailed` without either."""
        found = url or self.directory.author_settings().get("PACKHORSE_JOURNAL_URL")
        if not found:
            raise CommandFailed("name the journal with --journal", Exit.USAGE)
        return found

    def _service(self, name: Literal["publisher", "topology", "jobs"]) -> str:
        if self.server:
            return self.server
        running = self._running()
        urls = {"publisher": running.publisher, "topology": running.topology, "jobs": running.jobs}
        return urls[name]

    def _running(self) -> RunningStack:
        try:
            return self.directory.running()
        except NotRunning as error:
            raise CommandFailed(f"no --server was given, and {error}", Exit.USAGE) from error


def read_token(path: Path) -> str:
    """Return the token of a file: its only line, or the first one of a packhorse token file."""
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise CommandFailed(f"the token file can't be read: {error}", Exit.USAGE) from error
    if not text.startswith("{"):
        return text
    try:
        tokens = [entry["token"] for entry in json.loads(text)["tokens"] if entry.get("token")]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"{path} is no token file: {error}", Exit.USAGE) from error
    if not tokens:
        raise CommandFailed(f"{path} holds digests only; name the token itself", Exit.USAGE)
    return str(tokens[0])
