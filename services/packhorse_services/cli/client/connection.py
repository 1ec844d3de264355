"""Which service a command talks to, and with which token."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packhorse.client.addresses import Addresses, read_token, stack_token
from packhorse.client.blocking import Client
from packhorse.client.exchange import ServiceName
from packhorse.client.stack_folder import NotRunning, RunningStack, default_folder
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.failures import CommandFailed, Exit, words


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
        return DataDirectory(self.data or default_folder())

    def publisher(self, timeout: float = 30.0) -> Client:
        """Return a client of the publisher. Raises `CommandFailed` when none is known."""
        return self._client("publisher", timeout)

    def publisher_url(self) -> str:
        """Return where the publisher is. Raises `CommandFailed` when nothing says so."""
        return self._service("publisher")

    def topology(self) -> Client:
        """Return a client of the topology service. Raises `CommandFailed` when none is known."""
        return self._client("topology")

    def jobs(self, timeout: float = 30.0) -> Client:
        """Return a client of the jobs service. Raises `CommandFailed` when none is known."""
        return self._client("jobs", timeout)

    def cleanup(self) -> Client:
        """Return a client of the cleanup service. Raises `CommandFailed` when none is known."""
        return self._client("cleanup")

    def _client(self, service: ServiceName, timeout: float = 30.0) -> Client:
        return client_of(service, self._service(service), self.token(), timeout=timeout)

    def token(self, url: str | None = None) -> str | None:
        """Return the token to send to `url`, else to what `--server` names or to the stack.

        None where there is none, for a server that asks for none.
        """
        return self._named_token() or stack_token(self.directory, url or self.server)

    def _named_token(self) -> str | None:
        if self.token_text or self.token_file is None:
            return self.token_text
        return read_token(self.token_file)

    def addresses(
        self, others: Mapping[ServiceName, str | None], options: Mapping[ServiceName, str]
    ) -> Addresses:
        """Return the publisher and others, where they are None the stack's; `options` say them.

        The stack's token goes to its own servers only.
        """
        urls = {name: url for name, url in others.items() if url is not None}
        urls["publisher"] = self.publisher_url()
        return Addresses(urls, self._named_token(), self.directory, options)

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

    def journal(self, url: str | None) -> str:
        """Return `url`, or the journal of the stack. Raises `CommandFailed` without either."""
        found = url or self.directory.author_settings().get("PACKHORSE_JOURNAL_URL")
        if not found:
            raise CommandFailed(
                "no journal is known: name it with --journal, PACKHORSE_JOURNAL_URL or "
                "PACKHORSE_JOURNAL_URL_FILE",
                Exit.USAGE,
            )
        return found

    def _service(self, name: ServiceName) -> str:
        return self.server or str(getattr(self._running(), name))

    def _running(self) -> RunningStack:
        try:
            return self.directory.running()
        except NotRunning as error:
            raise CommandFailed(f"no --server was given, and {error}", Exit.USAGE) from error


def client_of(
    service: ServiceName,
    url: str,
    token: str | None,
    *,
    timeout: float = 30.0,
    option: str = "--server",
) -> Client:
    """Return a client of one service, which sends nothing again: the user does.

    Errors name the `option` that says the URL. Raises `Misused` for what is no URL and no token.
    """
    where = Addresses({service: url}, token)
    where.require(service)
    return Client.of(where, timeout=timeout, words=words(option))
