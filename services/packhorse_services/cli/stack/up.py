"""`packhorse up`: the embedded stack as processes, until somebody ends it."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from packhorse.blobs.open import open_blobs
from packhorse.client.addresses import read_token
from packhorse.client.blocking import Client
from packhorse.client.errors import ClientError, Misused
from packhorse.client.stack_folder import RunningStack
from packhorse.db.prepare import prepare_database
from packhorse.errors import PackhorseError, Permanent, Transient
from packhorse.runtime.token_file import ensure_token_file
from packhorse.wire.topics import Topics
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import client_of
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.client.views import show_table
from packhorse_services.cli.stack.child import ChildProcess, ChildProgram, bound_log
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.forked import ForkServer
from packhorse_services.cli.stack.interruptions import Interruptions
from packhorse_services.cli.stack.layout import (
    choose_ports,
    connections,
    database_names,
    describe,
    has_own_journal,
    journal_url,
    plan,
    tools_settings,
)
from packhorse_services.cli.stack.supervisor import Supervisor
from packhorse_services.cli.topics import provision

_TEMPLATE = "packhorse_template"
_LOOK_S = 0.2
_TEND_S, _RENEW_S = 5.0, 0.5
"""How often PostgreSQL and the logs are looked at, and programs that are to be run again; the end
of a program is noticed at once."""
_ANNOUNCED_S = 15.0


def up(options: StackOptions, *, as_json: bool) -> None:
    """Start everything below the data folder, say where it is, and stay until a signal comes.

    Raises what keeps it from starting; nothing of the stack runs on after that.
    """
    check_named(options)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's waits until a client's call returns
    check_answering(options)  # may take long, and has nothing that a signal must end
    interruptions = Interruptions()
    with closing(interruptions):
        _run(options, interruptions, as_json=as_json)


def _run(options: StackOptions, interruptions: Interruptions, *, as_json: bool) -> None:
    ended = interruptions.ended
    directory = options.directory
    directory.refuse_claimed()  # by another stack, whose ports are no news then
    ports = choose_ports(options)  # a taken one is reported before anything is made
    server = EmbeddedPostgres(directory.postgres, connections=connections(options), cancelled=ended)
    with directory.claimed(), _running(server) as postgres:
        token = ensure_token_file(directory.tokens)
        programs = _prepared(options, postgres, ports)
        stack = _Stack(directory, postgres, programs)
        output.report(f"Starting {len(programs)} programs …")
        try:
            stack.supervisor.start(ended)
            if not ended():
                stack.await_announcements(ended)
                _show(stack.publish(), token, as_json=as_json)
            while not ended():
                stack.tend()
                awaited = _RENEW_S if stack.supervisor.is_renewing() else _TEND_S
                interruptions.wait(awaited, stack.forks.news())
            output.report("Ending …")
        finally:
            stack.supervisor.stop()
            stack.forks.close()


class _Stack:
    """The running server and programs, and what is reported about them."""

    def __init__(
        self,
        directory: DataDirectory,
        postgres: EmbeddedPostgres,
        programs: Sequence[ChildProgram],
    ) -> None:
        self.forks = ForkServer(directory.logs / "forks.log")
        children = [
            ChildProcess(one, directory.logs / f"{one.name}.log", self.forks) for one in programs
        ]
        self.supervisor = Supervisor(children, output.report)
        self._directory, self._postgres = directory, postgres
        self._described = describe(directory, programs)
        self._author = tools_settings(programs, directory, _known_token(directory))
        self._is_news = False
        self._failed = ""

    def await_announcements(self, cancelled: Callable[[], bool]) -> None:
        """Return once the publisher knows every subscriber, or when that can't be asked."""
        wanted = set(self._described.subscribers)
        deadline = time.monotonic() + _ANNOUNCED_S
        try:
            with self._publisher() as publisher:
                while wanted - _known(publisher) and not cancelled():
                    if time.monotonic() > deadline:
                        break
                    time.sleep(_LOOK_S)
        except ClientError as error:
            output.report(f"whether subscribers have announced themselves is not known: {error}")

    def _publisher(self) -> Client:
        token = read_token(self._directory.tokens)
        return client_of("publisher", self._described.publisher, token)

    def publish(self) -> RunningStack:
        """Let other commands know the processes as they are now."""
        pids = {**self.supervisor.pids(), "postgres": self._postgres.pid()}
        described = replace(self._described, pids=pids)
        self._directory.publish(described, self._author)
        return described

    def tend(self) -> None:
        """Renew what has died. What fails is reported when it is news, and tried again."""
        failed = ""
        try:
            self._renew()
        except (PackhorseError, OSError) as error:
            failed = str(error)
        if failed and failed != self._failed:
            output.report(f"trying again: {failed}")
        self._failed = failed

    def _renew(self) -> None:
        self._is_news |= self.supervisor.tend()
        if not self._postgres.running():
            if not self._failed:
                output.report("PostgreSQL has ended; starting it again")
            self._postgres.start()
            self._is_news = True
        if self._is_news:
            self.publish()
            self._is_news = False
        for log in (self._postgres.log, *(child.log for child in self.supervisor.children)):
            bound_log(log)


def _prepared(
    options: StackOptions, postgres: EmbeddedPostgres, ports: list[int]
) -> Sequence[ChildProgram]:
    """Make databases and topics that are missing, and return the programs to run on them."""
    databases = _ensure_databases(postgres, database_names(options))
    if has_own_journal(options):
        check_topics(journal_url(options, databases), options.topics())
    return plan(options, databases, ports)


def _ensure_databases(postgres: EmbeddedPostgres, names: Sequence[str]) -> dict[str, str]:
    """Create those that are missing, copies of one with the newest schema, and return the URLs.

    One that is there keeps its schema; the programs that use it migrate it when they start.
    """
    missing = set(names) - postgres.databases()
    if missing:
        prepare_database(postgres.ensure_database(_TEMPLATE), "packhorse-cli")
    for name in sorted(missing):
        postgres.ensure_database(name, template=_TEMPLATE)
    return {name: postgres.url(name) for name in names}


def _known_token(directory: DataDirectory) -> str | None:
    """Return the token for tools; None where the user's own token file holds digests only."""
    try:
        return read_token(directory.tokens)
    except Misused:
        return None


def _known(publisher: Client) -> set[str]:
    """Return who has announced itself of late; what an earlier run has said is stale."""
    return {one["subscriber"] for one in publisher.subscribers() if one["state"] != "STALE"}


@contextmanager
def _running(postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    output.report("Starting PostgreSQL …")
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.stop()


def _show(stack: RunningStack, token: str | None, *, as_json: bool) -> None:
    if as_json:
        output.line(stack.line())
        return
    addresses = {
        "publisher": stack.publisher,
        "content": stack.content,
        "cleanup": stack.cleanup,
        **stack.subscribers,
        "topology": stack.topology,
        "jobs": stack.jobs,
        "console": stack.console,
    }
    rows = [{"name": name, "url": url} for name, url in addresses.items()]
    show_table({"PROGRAM": "name", "ADDRESS": "url"}, rows)
    output.line(f"console {stack.console}/pages/overview")
    if link := _sign_in_link(stack):
        output.line(f"sign in {link}  (once, within 10 minutes)")
    output.line(f"data    {stack.data}\ntokens  {stack.token_file}")
    if token is not None:
        output.line(f"token   {token}  (shown this once, kept in that file)")


def _sign_in_link(stack: RunningStack) -> str:
    """Return a link that signs a browser in to the console; empty when it gives none."""
    token = _known_token(DataDirectory(Path(stack.data)))
    if token is None:
        return ""
    try:
        with client_of("console", stack.console, token) as console:
            return f"{stack.console}{console.sign_in_link()}"
    except ClientError as error:
        output.report(f"the console gave no link to sign in: {error}")
        return ""


class TopicsUnfit(Permanent):
    """Topics that somebody else made are not what packhorse needs; the text says what to change."""


def check_named(options: StackOptions) -> None:
    """Raise `CommandFailed` with `Exit.USAGE` for what no program could use or open.

    Connects to nothing; a folder for blobs is made.
    """
    options.topics()
    if not has_own_journal(options):
        with provision.opened(options.journal):
            pass
    if options.blobs:
        try:
            open_blobs(options.blobs).close()
        except PackhorseError as error:
            raise CommandFailed(f"--blobs: {error}", Exit.USAGE) from error


def check_answering(options: StackOptions) -> None:
    """Return once named blobs take and give what is put there, and a named journal has its topics.

    Raises `CommandFailed` for one that does not answer, and what `check_topics` raises.
    """
    if options.blobs:
        with _option_at_fault("--blobs"), closing(open_blobs(options.blobs)) as blobs:
            blobs.check()
    if not has_own_journal(options):
        with _option_at_fault("--journal"):
            check_topics(options.journal, options.topics())


def check_topics(journal: str, topics: Topics) -> None:
    """Create the topics that are missing. Raises `TopicsUnfit` for one that can't be used."""
    if wrong := provision.create(journal, topics):
        raise TopicsUnfit("\n".join(wrong))


@contextmanager
def _option_at_fault(option: str) -> Iterator[None]:
    try:
        yield
    except Transient as error:
        raise CommandFailed(f"{option}: {error}") from error
