"""A tree behind a content service: what it is asked may be asked again, whatever got lost.

Files are written by digest, so a batch that may have arrived is sent once more. A subscriber
serves what is read from it in the same way.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from packhorse.blobs.archives import MAX_BYTES, MEDIA_TYPE, packed, unpacked
from packhorse.client.addresses import Addresses
from packhorse.client.blocking import Client
from packhorse.client.errors import Invalid, NotFound, Refused, Unreadable
from packhorse.client.exchange import Request, answered_by, quoted
from packhorse.client.patience import Patience
from packhorse.client.problems import Words
from packhorse.content.batches import batches
from packhorse.content.node import Binary, Node
from packhorse.content.rows import parse_binaries
from packhorse_services.content.transfer.folder_import import ImportBatch, Stored
from packhorse_services.content.transfer.sources import (
    UNREADABLE,
    NotImportable,
    SourceEntry,
    chunks_of,
    examined,
    media_type_of,
)

_PAGE = 1_000
_MEMBER_BYTES = 1_024
_ARCHIVES = 2
"""At a time: a service makes no more for one caller."""
_PART_BYTES = MAX_BYTES * 3 // 4
_TIMEOUT_S = 60.0
_PATIENCE_S = 120.0
_WORDS = Words(address="--server", token="--token or --token-file")  # noqa: S106 - the options


def client_of(url: str, token: str | None) -> Client:
    """Return a client of one content service. Raises `Misused` for what is no URL and no token."""
    where = Addresses({"content": url}, token)
    where.require("content")
    return Client.of(where, timeout=_TIMEOUT_S, patience=Patience(_PATIENCE_S), words=_WORDS)


class RemoteTree:
    """What folders are imported into and exported from, over HTTP. Safe to use from threads."""

    def __init__(self, client: Client) -> None:
        """Take a client of a content service, or for an export also of a subscriber."""
        self._client = client
        self._reading = threading.Semaphore(_ARCHIVES)

    def read_existing(self, batch: ImportBatch) -> None:
        """Ask nothing: the service knows what is there."""

    def store(self, batch: ImportBatch, _known: None) -> Stored:
        """Write a batch: what it refers to is sent where the service does not have it."""
        stored = Stored()
        small: dict[str, bytes] = {}
        files: dict[str, Mapping[str, Any]] = {}
        for path, entry in batch.files.items():
            try:
                content, sha256, length = examined(entry)
            except UNREADABLE as error:
                stored.refused.append((entry.name, f"can't be read: {error}"))
                continue
            if content is not None:
                small[sha256] = content
            files[path] = {
                "path": path,
                "digest": f"sha256:{sha256}",
                "length": length,
                "media_type": media_type_of(path),
            }
        missing = self._write(files, batch, stored, folders=batch.folders)
        if missing:
            sent = self._send_bytes({path: files[path] for path in missing}, batch, small, stored)
            for path in self._write(sent, batch, stored):
                stored.refused.append((batch.files[path].name, "its bytes have gone meanwhile"))
        return stored

    def _write(
        self,
        files: Mapping[str, Mapping[str, Any]],
        batch: ImportBatch,
        stored: Stored,
        *,
        folders: Sequence[str] = (),
    ) -> list[str]:
        """Count what became of files and folders; return those whose bytes are missing."""
        if not files and not folders:
            return []
        body = orjson.dumps({"files": list(files.values()), "folders": list(folders)})
        answer = orjson.loads(self._post("/files", body, "application/json"))
        missing = []
        for one in answer["outcomes"]:
            path, state = one["path"], one["state"]
            if state == "REFUSED":
                name = batch.files[path].name if path in files else path
                stored.refused.append((name, one["reason"]))
            elif path not in files:
                continue
            elif state == "MISSING":
                missing.append(path)
            elif state == "UNCHANGED":
                stored.unchanged += 1
            else:
                stored.files += 1
                stored.bytes += files[path]["length"]
        return missing

    def _send_bytes(
        self,
        files: dict[str, Mapping[str, Any]],
        batch: ImportBatch,
        small: Mapping[str, bytes],
        stored: Stored,
    ) -> dict[str, Mapping[str, Any]]:
        """Send the bytes of files, and return those; one that can't be read any more is refused."""
        digests = {path: one["digest"].removeprefix("sha256:") for path, one in files.items()}
        wanted = {one: small[one] for one in digests.values() if one in small}
        parts = batches(wanted.items(), _size_in_archive, most=len(wanted), most_size=_PART_BYTES)
        for part in parts:
            self._post("/blobs", packed(dict(part)), MEDIA_TYPE)
        sent = dict(files)
        for path, sha256 in digests.items():
            if sha256 not in small:
                try:
                    self.put_content(batch.files[path], sha256)
                except UNREADABLE as error:
                    stored.refused.append((batch.files[path].name, f"can't be read: {error}"))
                    del sent[path]
        return sent

    def put_content(self, entry: SourceEntry, sha256: str) -> None:
        """Send a file's bytes, which have this SHA-256. Raises `UNREADABLE`."""

        def content() -> Iterator[bytes]:
            assert entry.open is not None  # noqa: S101 - it is a file
            with entry.open() as file:
                yield from chunks_of(file)

        request = Request("PUT", f"/blobs/sha256:{sha256}", "content", content=content)
        try:
            self._client.run(answered_by(request))
        except Invalid as error:
            if error.status != 422:
                raise
            raise NotImportable(f"it changed while it was read: {error}") from error

    def _post(self, path: str, content: bytes, media_type: str) -> bytes:
        """Return what is answered to what may arrive twice."""
        headers = {"Content-Type": media_type}
        request = Request(
            "POST", path, "content", content=content, headers=headers, repeatable=True
        )
        return self._client.run(answered_by(request)).content

    def finish(self, batch: ImportBatch, stored: Stored) -> None:
        """Do nothing: the service has written the batch."""

    @contextmanager
    def nodes(self, path: str) -> Iterator[Iterator[Node]]:
        """Lend a node and all below it, page by page; each page is of its own snapshot."""
        yield self._nodes(path)

    def _nodes(self, path: str) -> Iterator[Node]:
        url: str | None = f"/subtrees{quoted(path)}?limit={_PAGE}"
        while url is not None:
            page = self._read(url)
            for one in page["nodes"]:
                yield _node(one)
            url = page["next"]

    def _read(self, url: str) -> Any:
        """Return what the service says, with numbers that `orjson.dumps` writes as they came."""
        return self._client.answer(url, "content").document(numbers=orjson.Fragment)

    def existing(self, paths: Sequence[str]) -> Mapping[str, Node]:
        """Return those of the nodes that are there, asked for one by one."""
        found = {}
        for path in paths:
            with suppress(NotFound):
                found[path] = _node(self._read(f"/content{quoted(path)}"))
        return found

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        """Write nodes one by one; the service makes the folders above them."""
        for node in nodes:
            self._client.put_node(
                node.path,
                node.type,
                orjson.loads(node.properties),
                binaries={
                    one.name: {
                        "digest": f"sha256:{one.sha256}",
                        "length": one.length,
                        "media_type": one.media_type,
                    }
                    for one in node.binaries
                },
            )

    def contents(self, binaries: Sequence[Binary]) -> Mapping[str, bytes | Exception]:
        """Return small binaries by their SHA-256; one by one where not all are there."""
        body = orjson.dumps({"digests": [f"sha256:{one.sha256}" for one in binaries]})
        try:
            with self._reading:
                archive = unpacked(self._post("/blob-archives", body, "application/json"))
            return {one.sha256: archive[one.sha256] for one in binaries}
        except Refused as error:
            if error.status not in (404, 413):
                raise
        return {one.sha256: self._content(one) for one in binaries}

    def _content(self, binary: Binary) -> bytes | Exception:
        try:
            return b"".join(self.stream(binary))
        except UNREADABLE as error:
            return error

    def stream(self, binary: Binary) -> Iterator[bytes]:
        """Yield a binary's bytes, verified by the time that the last one comes."""
        try:
            yield from self._client.read_blob(f"sha256:{binary.sha256}")
        except (NotFound, Unreadable) as error:
            raise OSError(str(error)) from error


def _node(document: Mapping[str, Any]) -> Node:
    binaries = parse_binaries(orjson.dumps(document["binaries"]))
    properties = orjson.dumps(document["properties"]).decode()
    return Node(document["path"], document["type"], properties, binaries)


def _size_in_archive(binary: tuple[str, bytes]) -> int:
    return len(binary[1]) + _MEMBER_BYTES
