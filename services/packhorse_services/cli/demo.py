"""`packhorse demo`: real content from an author to its subscribers, and proof that it arrived."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packhorse_services.cli import demo_content, output, rooms, views
from packhorse_services.cli.api import Api, CommandFailed
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.data_directory import RunningStack
from packhorse_services.cli.demo_checks import Holding, holdings, pages
from packhorse_services.cli.demo_progress import SubscriberProgress
from packhorse_services.cli.distribute import request
from packhorse_services.cli.stack_process import stack_on

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

    def import_files(self, folder: Path) -> None:
        """Import the folder into the author."""
        began = time.monotonic()
        count = demo_content.count_files(folder)
        rooms.delegate(self.connection, "content", ["import", str(folder), "--at", ROOT])
        _say(f"imported {count} files into the author in {time.monotonic() - began:.1f} s")

    def distribute(self, what: str, bodies: Sequence[dict[str, Any]]) -> None:
        """Distribute each body as a package of its own, and wait until all have all."""
        _say(f"distributing {what}: {len(bodies)} packages to {len(self.subscribers)} subscribers")
        began = time.monotonic()
        with (
            self.connection.publisher() as publisher,
            SubscriberProgress(self.subscribers, len(bodies)) as progress,
            ThreadPoolExecutor(_SENDERS) as senders,
        ):
            sending = [senders.submit(request, publisher, body) for body in bodies]
            while not progress.show(sum(one.done() for one in sending), publisher.get("/queues")):
                if time.monotonic() - began > _TIMEOUT_S:
                    raise CommandFailed(f"not everywhere after {_TIMEOUT_S:.0f} s; see get queues")
                time.sleep(_POLL_S)
            for one in sending:
                one.result()
        _say(f"imported everywhere after {time.monotonic() - began:.1f} s")

    def change(self, paths: Sequence[str]) -> None:
        """Give each page a new property at the author."""
        with Api(self.stack.content, self.connection.token()) as content:
            for number, path in enumerate(paths):
                content.patch(f"/content{quote(path)}", {"properties": {"revision": number}})

    def verify(self) -> None:
        """Compare every subscriber with the author. Raises `CommandFailed` when one differs."""
        author, *others = holdings(self.connection.directory, self.subscribers, ROOT)
        rows = [_row(author, author), *(_row(one, author) for one in others)]
        columns = ("database", "nodes", "binaries", "content hash", "equal")
        output.data.print(views.table({name: name for name in columns}, rows))
        if not all(one.equals(author) for one in others):
            raise CommandFailed("a subscriber differs from the author")


def demo(content: Path | None, subscribers: int, data: Path | None) -> None:
    """Run the demo from the empty folder to the proof. Raises `CommandFailed`."""
    with _folder(data) as folder, _files(content) as files:
        with stack_on(folder, "--subscribers", str(subscribers)) as stack:
            run = Demo(stack, Connection(folder))
            run.import_files(files)
            run.distribute("everything", _parts(run))
            changed = pages(run.connection.directory, ROOT, _CHANGES)
            run.change(changed)
            run.distribute("changed pages", [_body("ADD", paths=[path]) for path in changed])
            run.verify()
            _show_where(run, changed[0])
        if data is not None:
            _say(f"the stack has ended; packhorse up --data {folder} starts it again")


def _parts(run: Demo) -> list[dict[str, Any]]:
    """Return a deep distribution for each child of the root, or one of all when they are many."""
    with Api(run.stack.content, run.connection.token()) as content:
        listing = content.get(f"/children{ROOT}?limit=1000")
    if listing["next"] is not None:
        return [_body("ADD", deep_paths=[ROOT])]
    return [_body("ADD", deep_paths=[one["path"]]) for one in listing["children"]]


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
        _say(f"content: {content}")
        yield content
        return
    with tempfile.TemporaryDirectory(prefix="packhorse-demo-content-") as gathered:
        for source in demo_content.gather(Path(gathered)):
            _say(f"content: {source.origin}, from {source.folder}")
        yield Path(gathered)


def _row(one: Holding, author: Holding) -> dict[str, Any]:
    return {
        "database": one.database,
        "nodes": one.nodes,
        "binaries": one.binaries,
        "content hash": one.digest[:16],
        "equal": one.equals(author),
    }


def _show_where(run: Demo, page: str) -> None:
    with run.connection.publisher() as publisher:
        views.QUEUES.show(publisher.get("/queues"), views.Format.TABLE)
    stack, name = run.stack, run.subscribers[0]
    header = f"-H 'Authorization: Bearer {run.connection.token()}'"
    json_header = "-H 'Content-Type: application/json'"
    for program, url in (
        ("publisher", stack.publisher),
        ("content", stack.content),
        *stack.subscribers.items(),
    ):
        output.line(f"{program:<10} {url}")
    body = json.dumps(_body("ADD", paths=[page]))
    output.line(f"curl {header} {json_header} -d '{body}' {stack.publisher}/distribute")
    output.line(f"curl {header} {stack.publisher}/queues/{name}")
    output.line(f"curl {header} -X POST {stack.publisher}/queues/{name}/clear")


def _say(sentence: str) -> None:
    output.tell(sentence)
