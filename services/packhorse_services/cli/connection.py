"""Which service a command talks to, and with which token."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packhorse_services.cli.api import Api, CommandFailed, Exit
from packhorse_services.cli.data_directory import DataDirectory, NotRunning
from packhorse_services.cli.settings import default_data


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

    def publisher(self) -> Api:
        """Return the publisher's API. Raises `CommandFailed` when none is known."""
        return Api(self.publisher_url(), self.token())

    def publisher_url(self) -> str:
        """Return where the publisher is. Raises `CommandFailed` when nothing says so."""
        return self._service("publisher")

    def topology(self) -> Api:
        """Return the topology service's API. Raises `CommandFailed` when none is known."""
        return Api(self._service("topology"), self.token())

    def jobs(self) -> Api:
        """Return the jobs service's API. Raises `CommandFailed` when none is known."""
        return Api(self._service("jobs"), self.token())

    def token(self) -> str | None:
        """Return the token to send; None where there is none, for a server that asks for none."""
        if self.token_text:
            return self.token_text
        if self.token_file is not None:
            return read_token(self.token_file)
        if self.server or not self.directory.tokens.exists():
            return None
        return read_token(self.directory.tokens)

    def journal(self, url: str | None) -> str:
        """Return `url`, or the journal of the stack. Raises `CommandFailed` without either."""
        found = url or self.directory.author_settings().get("PACKHORSE_JOURNAL_URL")
        if not found:
            raise CommandFailed("name the journal with --journal", Exit.USAGE)
        return found

    def _service(self, name: Literal["publisher", "topology", "jobs"]) -> str:
        if self.server:
            return self.server
        try:
            running = self.directory.running()
        except NotRunning as error:
            raise CommandFailed(f"no --server was given, and {error}", Exit.USAGE) from error
        urls = {"publisher": running.publisher, "topology": running.topology, "jobs": running.jobs}
        return urls[name]


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
