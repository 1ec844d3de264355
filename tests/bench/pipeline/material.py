"""What the pipeline's benchmarks work on: an author's tree, and the packages that made it."""

import base64
import json
import random
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import psycopg

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.api import Appended, Journal, Outgoing
from packhorse.messaging.topics import standard_topics
from packhorse.packages.body import pack
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import encode_package
from packhorse.wire.topics import Topics

ROOT = "/content/huge"
AGENT = "main"
TOPICS = Topics()
_TEXTS = 500
_TEXT_BYTES = 4_900  # a record of it has about 5 KB: base64 shrinks to three quarters, ids do not
_IN_FLIGHT = 1_000
_EACH_FOLDER = 100


def page(number: int, texts: list[str]) -> Node:
    """Return one page, below a folder of a hundred."""
    path = f"{ROOT}/f{number // _EACH_FOLDER:06d}/page-{number:08d}"
    text = texts[number % len(texts)]
    return Node(path, "page", json.dumps({"n": number, "text": text}))


def texts(size: int = _TEXT_BYTES) -> list[str]:
    """Return texts of so many bytes that compress like images do: hardly."""
    source = random.Random(1)
    return [base64.b64encode(source.randbytes(size)).decode() for _ in range(_TEXTS)]


def fill_tree(url: str, count: int, given: list[str] | None = None) -> None:
    """Make a repository of `count` pages and their folders, as the packages of `feed` would."""
    given = given or texts()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        columns = "(path, type, properties, binaries)"
        with cursor.copy(f"COPY content.node {columns} FROM STDIN") as copy:
            for path in ("/content", ROOT):
                copy.write_row((path, "folder", "{}", "{}"))
            for number in range(count):
                node = page(number, given)
                if number % _EACH_FOLDER == 0:
                    copy.write_row((node.path.rpartition("/")[0], "folder", "{}", "{}"))
                copy.write_row((node.path, node.type, node.properties, "{}"))
        cursor.execute("ANALYZE content.node")


def feed(journal: Journal, blobs_folder: str, count: int, given: list[str] | None = None) -> None:
    """Append a package for each page, from the log's first offset on."""
    journal.create_topics(standard_topics(TOPICS))
    append_all(journal, _packages(blobs_folder, count, given or texts()))


def append_all(journal: Journal, packages: Iterable[Outgoing]) -> None:
    """Append packages, many at a time."""
    pending: deque[Future[Appended]] = deque()
    for outgoing in packages:
        pending.append(journal.append(TOPICS.package, outgoing))
        if len(pending) >= _IN_FLIGHT:
            pending.popleft().result()
    for future in pending:
        future.result()


def _packages(blobs_folder: str, count: int, given: list[str]) -> Iterator[Outgoing]:
    blobs, producer = open_blobs(blobs_folder), str(uuid.uuid4())
    for number in range(count):
        yield package_of(page(number, given), number, producer, number, blobs)


def package_of(
    node: Node | str, number: int, producer: str, sequence: int, blobs: BlobStore
) -> Outgoing:
    """Return the package of one page, or of the removal of a path; `number` makes its id."""
    package_id = f"dstrpck-{1_700_000_000_000 + number}-{number:016x}"
    path, action, packed = str(node), Action.DELETE, None
    if isinstance(node, Node):
        path, action, packed = node.path, Action.ADD, pack([node], package_id, blobs)
    sizes = (packed.length, packed.node_count) if packed else (0, 0)
    entry = PackageEntry(
        *(package_id, AGENT, action, (path,), (), "bench", producer, 1, sequence),
        *(*sizes, 1_700_000_000_000 + number),
    )
    encoded = encode_package(PackageMessage(entry, packed and packed.body))
    return Outgoing(encoded.value, dict(encoded.headers))
