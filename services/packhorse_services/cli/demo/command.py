"""`packhorse demo`: real content from an author to its subscribers, and proof that it arrived."""

import contextlib
import json
import math
import shlex
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from packhorse.client.blocking import Client
from packhorse.client.calls.distributing import request
from packhorse.client.stack_folder import RunningStack
from packhorse.content import scan
from packhorse.content.tree import content_hash
from packhorse.db.connect import connect
from packhorse_services.cli import service_commands
from packhorse_services.cli.client import output, views
from packhorse_services.cli.client.connection import Connection, client_of
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.demo.progress import SubscriberProgress
from packhorse_services.cli.distribute.command import await_distributed
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.layout import AUTHOR_DATABASE
from packhorse_services.cli.stack.postgres_binaries import binaries
from packhorse_services.cli.stack.stack_process import stack_on

_APPLICATION = "packhorse-demo"


@dataclass(frozen=True, slots=True)
class RepositoryContent:
    """What one repository holds below a path."""

    database: str
    nodes: int
    binaries: int
    digest: str

    def equals(self, other: "RepositoryContent") -> bool:
        """Return whether both hold the same content."""
        return self.digest == other.digest and self.nodes == other.nodes


def holdings(
    directory: DataDirectory, subscribers: list[str], root: str
) -> list[RepositoryContent]:
    """Return what each repository of a running stack holds at and below `root`, author first."""
    postgres = _server(directory)
    names = [AUTHOR_DATABASE, *subscribers]
    return [_holding(name, postgres.url(name), root) for name in names]


def pages(directory: DataDirectory, root: str, count: int) -> list[str]:
    """Return about `count` paths of the author, spread over all below `root`."""
    with connect(_server(directory).url(AUTHOR_DATABASE), _APPLICATION) as connection:
        return scan.spread_paths(connection, root, "file", count)


def _server(directory: DataDirectory) -> EmbeddedPostgres:
    postgres = EmbeddedPostgres(directory.postgres)
    if not postgres.attach():
        raise CommandFailed(f"no PostgreSQL runs on {directory.root}")
    return postgres


def _holding(name: str, url: str, root: str) -> RepositoryContent:
    with connect(url, _APPLICATION) as connection:
        nodes, binaries = scan.count_nodes(connection, root)
        return RepositoryContent(name, nodes, binaries, content_hash(connection, root))


_NO_CONTENT = shutil.ignore_patterns(
    "__pycache__", "site-packages", "dist-packages", "test", "config-*", "*.pyc", "*.a"
)
ROOT = "/content/demo"
_CHANGES = 300
_SENDERS = 8
_POLL_S = 0.2
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Demo:
    """One running demo."""

    stack: RunningStack
    connection: Connection

    @property
    def subscribers(self) -> list[str]:
        """The subscribers' names."""
        return list(self.stack.subscribers)

    def content(self) -> Client:
        """Return a client of the author's content."""
        return client_of("content", self.stack.content, self.connection.token())

    def import_files(self, folder: Path) -> None:
        """Import the folder into the author; what the import refuses is left out and reported."""
        try:
            arguments = ["import", str(folder), "--at", ROOT]
            if service_commands.forward(self.connection, "content", arguments):
                raise CommandFailed(f"{folder} could not be imported")
        except CommandFailed as error:
            output.report(f"{error}; going on with what was imported")

    def distribute(self, what: str, bodies: Sequence[dict[str, Any]]) -> None:
        """Distribute each body as a package of its own, and wait until all have all."""
        receivers = f"{len(self.subscribers)} subscribers"
        output.report(f"distributing {what}: {len(bodies)} packages to {receivers}")
        began = time.monotonic()
        with (
            self.connection.publisher() as publisher,
            SubscriberProgress(self.subscribers, len(bodies)) as progress,
            ThreadPoolExecutor(_SENDERS) as senders,
        ):
            sending = [senders.submit(publisher.run, request(body)) for body in bodies]
            while not progress.show(sum(one.done() for one in sending), publisher.get("/queues")):
                if time.monotonic() - began > _TIMEOUT_S:
                    raise CommandFailed(f"not everywhere after {_TIMEOUT_S:.0f} s; see get queues")
                time.sleep(_POLL_S)
            # A queue may be shown before its newest package is in it; a distribution can't be.
            newest = max((one.result() for one in sending), key=_place)
            await_distributed(publisher, newest["id"], _TIMEOUT_S)
        output.report(f"imported everywhere after {time.monotonic() - began:.1f} s")

    def change(self, paths: Sequence[str]) -> None:
        """Give each page a new property at the author."""
        with self.content() as content:
            for number, path in enumerate(paths):
                content.patch_node(path, {"revision": number})

    def verify(self) -> None:
        """Compare every subscriber with the author. Raises `CommandFailed` when one differs."""
        author, *others = holdings(self.connection.directory, self.subscribers, ROOT)
        rows = [_row(author, author), *(_row(one, author) for one in others)]
        views.show_table({name.upper(): name for name in rows[0]}, rows)
        if not all(one.equals(author) for one in others):
            raise CommandFailed("a subscriber differs from the author")


def demo(content: Path | None, subscribers: int, data: Path | None, *, stay: bool) -> None:
    """Run the demo from the empty folder to the proof. Raises `CommandFailed`.

    The stack ends with the demo, or when Ctrl-C comes if it is to `stay`; a signal ends both.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, _end)
    if content is not None and not any(path.is_file() for path in content.rglob("*")):
        raise CommandFailed(f"there is no file in {content}", Exit.USAGE)
    with _folder(data) as folder, stack_on(folder, "--subscribers", str(subscribers)) as stack:
        run = Demo(stack, Connection(folder))
        with _files(content) as files:
            run.import_files(files)
        run.distribute("everything", _parts(run))
        changed = pages(run.connection.directory, ROOT, _CHANGES)
        run.change(changed)
        run.distribute("changed pages", [_body("ADD", paths=[path]) for path in changed])
        run.verify()
        _show_queues(run)
        _show_where(stack)
        _show_calls(run, changed[0])
        if stay:
            output.report("Ctrl-C ends the stack")
            _wait_for_interrupt()


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # what is being removed is removed to the end
    sys.exit(128 + number)


def _wait_for_interrupt() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _parts(run: Demo) -> list[dict[str, Any]]:
    """Return a deep distribution for each child of the root, or one of all when they are many."""
    with run.content() as content:
        listing = content.get(f"/children{ROOT}?limit=1000", "content")
    if listing["next"] is not None:
        return [_body("ADD", deep_paths=[ROOT])]
    return [_body("ADD", deep_paths=[one["path"]]) for one in listing["children"]]


def _place(accepted: Mapping[str, Any]) -> float:
    """Return the package's offset; one that the journal has not confirmed yet comes last."""
    return math.inf if accepted["offset"] is None else accepted["offset"]


def _body(action: str, **paths: list[str]) -> dict[str, Any]:
    return {"action": action, **paths}


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="packhorse-demo-"))
    folder.chmod(0o711)  # the embedded server may run as another user
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _files(content: Path | None) -> Iterator[Path]:
    if content is not None:
        output.report(f"content: {content}")
        yield content
        return
    with tempfile.TemporaryDirectory(prefix="packhorse-demo-content-") as gathered:
        for source in gather(Path(gathered)):
            output.report(f"content: {source.origin}, from {source.folder}")
        yield Path(gathered)


def _row(one: RepositoryContent, author: RepositoryContent) -> dict[str, Any]:
    return {
        "database": one.database,
        "nodes": one.nodes,
        "binaries": one.binaries,
        "content hash": one.digest[:16],
        "equal": one.equals(author),
    }


def _show_queues(run: Demo) -> None:
    output.line("")
    with run.connection.publisher() as publisher:
        views.QUEUES.show(publisher.get("/queues"), views.Format.TABLE)


def _show_where(stack: RunningStack) -> None:
    addresses = {"publisher": stack.publisher, "content": stack.content, **stack.subscribers}
    rows = [{"name": name, "url": url} for name, url in addresses.items()]
    output.line("")
    views.show_table({"PROGRAM": "name", "ADDRESS": "url"}, rows)


def _show_calls(run: Demo, page: str) -> None:
    publisher, name = run.stack.publisher, run.subscribers[0]
    token = ("-H", f"Authorization: Bearer {run.connection.token()}")
    body = ("-H", "Content-Type: application/json", "-d", json.dumps(_body("ADD", paths=[page])))
    output.line("\nThe three calls, good as long as the stack runs (packhorse demo --stay):")
    for call in (
        (f"{publisher}/distribute", *token, *body),
        (f"{publisher}/queues/{name}", *token),
        (f"{publisher}/queues/{name}/clear", *token, "-X", "POST"),
    ):
        output.line(shlex.join(("curl", *call)))


@dataclass(frozen=True, slots=True)
class DemoContent:
    """A folder of real files, and where it comes from."""

    name: str
    folder: Path
    origin: str


def sources() -> list[DemoContent]:
    """Return the default content: about 2,500 files, many of them binary, several levels deep."""
    installed = binaries().parent
    return [
        DemoContent(
            "python", Path(sysconfig.get_path("stdlib")), "Python's standard library, PSF-2.0"
        ),
        DemoContent(
            "postgresql", installed / "share", "PostgreSQL's shared files, PostgreSQL Licence"
        ),
        DemoContent("headers", installed / "include", "PostgreSQL's headers, PostgreSQL Licence"),
    ]


def gather(folder: Path) -> list[DemoContent]:
    """Copy the default content below `folder`, one folder a source, and return the sources."""
    found = sources()
    for source in found:
        shutil.copytree(source.folder, folder / source.name, ignore=_NO_CONTENT, symlinks=False)
    return found
