"""An S3 server that stands still: for a while, and for good."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from packhorse.blobs import s3_client, s3_objects
from packhorse.blobs.api import BlobStore, BlobStoreUnavailable, package_key
from packhorse.blobs.open import open_blobs
from tests.harness.s3 import S3Server, running_s3
from tests.harness.waiting import eventually, pause

pytestmark = pytest.mark.s3

SMALL, LARGE = package_key("small-00"), package_key("large-00")
CALLS: dict[str, Callable[[BlobStore], object]] = {
    "put": lambda store: store.put(package_key("another-00"), [b"x"]),
    "put_large": lambda store: store.put(package_key("another-01"), [bytes(9_000_000)]),
    "get": lambda store: b"".join(store.get(LARGE)),
    "head": lambda store: store.head(SMALL),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(SMALL),
}


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    with running_s3() as own:
        yield own


def opened(server: S3Server, monkeypatch: pytest.MonkeyPatch, **limits: int) -> BlobStore:
    with closing(open_blobs(server.url())) as filling:  # within the usual limits
        filling.put(SMALL, [b"small"])
        filling.put(LARGE, [bytes(9_000_000)])
    for name, seconds in limits.items():
        monkeypatch.setattr(s3_client, name, seconds)
        monkeypatch.setattr(s3_objects, name, seconds)
    return open_blobs(server.url())


def works(call: Callable[[BlobStore], object], store: BlobStore) -> bool:
    try:
        call(store)
    except BlobStoreUnavailable as error:  # a busy server may take longer than the short limits
        raise AssertionError(error) from error
    return True


def test_it_is_noticed_and_works_again(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(server, monkeypatch, ANSWER_S=2, RETRIED_S=1)
    for call in CALLS.values():
        pause(server.process.pid)
        with pytest.raises(BlobStoreUnavailable):
            call(store)
        server.process.send_signal(signal.SIGCONT)
    for name, call in CALLS.items():
        eventually(lambda call=call: works(call, store), f"{name} works again")
    store.close()


@pytest.mark.parametrize("name", ["put_large", "get"])
def test_a_request_is_sent_again(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = opened(server, monkeypatch, ANSWER_S=3)
    goes_on = threading.Timer(4, server.process.send_signal, [signal.SIGCONT])
    pause(server.process.pid)
    goes_on.start()
    try:
        CALLS[name](store)
    finally:
        goes_on.join()
        store.close()


def test_an_upload_that_fails_leaves_no_parts(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(server, monkeypatch)

    def broken() -> Iterator[bytes]:
        for _ in range(20):
            yield bytes(2_000_000)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        store.put(package_key("another-02"), broken())
    listed = store._bucket.client.list_multipart_uploads(Bucket="blobs")  # type: ignore[attr-defined]
    assert not listed.get("Uploads")
    store.close()
