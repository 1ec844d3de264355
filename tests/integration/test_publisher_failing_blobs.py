"""A blob store that fails in the middle of an export costs that request alone, now and later."""

import gc
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.blobs.api import BlobStore, BlobStoreUnavailable
from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.content.node import Node
from packhorse.db.pool import is_alive
from packhorse.messaging.open import open_journal
from packhorse.packages.limits import PackageLimits, PackageRefused
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.request import Accepted
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.harness.depth import at_depth
from tests.harness.exporters import running
from tests.harness.publishing import Author, page, publish, request
from tests.harness.waiting import eventually

_DEADLINE_S = 120.0

ROUNDS = at_depth(3, 2)
PUTS = at_depth(
    [*product((0, 300_000, 900_000), (BlobStoreUnavailable, OSError, PackageRefused))],
    [
        *product((0, 300_000, 900_000), (BlobStoreUnavailable,)),
        (300_000, OSError),
        (900_000, PackageRefused),
    ],
)
"""After how many bytes a put fails, which decides what is left open, and how it is refused."""


class FailingBlobs:
    """A blob store that takes so many bytes of a put and then fails, as long as `failing` is set.

    Abandoned generators are collected during its puts: in the middle of another export.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self.program: int | None = None
        self.failure: type[Exception] = BlobStoreUnavailable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def put(self, key: str, chunks: Iterable[bytes]) -> Any:
        return self._blobs.put(key, self._up_to(chunks))

    def _up_to(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        taken = 0
        for chunk in chunks:
            gc.collect()
            taken += len(chunk)
            if self.program is not None and taken > self.program:
                raise self.failure("No space left on device")
            yield chunk


@pytest.fixture(autouse=True, scope="module")
def few_objects() -> None:
    """Keep a collection short: it leaves out what other tests of this process have made."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def blobs(tmp_path: Path) -> FailingBlobs:
    return FailingBlobs(open_blobs(str(tmp_path / "blobs")))


@pytest.fixture
def author(database_url: str, tmp_path: Path, blobs: FailingBlobs) -> Iterator[Author]:
    journal = open_journal(f"memory://{tmp_path}", client_name="tests")
    author = Author(database_url, journal, blobs)  # type: ignore[arg-type]
    author.write(page("/small"), *large("/large"), *large("/other"))
    yield author
    author.close()


def large(path: str) -> Iterator[Node]:
    """More than a package takes inline, and than a server's cursor gives at once."""
    randomness = random.Random(path)
    for number in range(150):
        text = randomness.randbytes(8_000).hex()
        yield Node(f"{path}/{number}", "page", f'{{"text": "{text}"}}')


@pytest.mark.parametrize(("program", "failure"), PUTS)
def test_r33_a_put_that_fails_leaves_nothing_that_disturbs_later_exports(
    author: Author, blobs: FailingBlobs, program: int, failure: type[Exception]
) -> None:
    early = author.early()
    blobs.program, blobs.failure = program, failure
    for _ in range(ROUNDS):
        refused, accepted = publish(early, request(deep=["/large"]), request("/small"))
        assert isinstance(refused.future.exception(), failure)
        assert accepted.future.result().offset is not None
    blobs.program = None
    for _ in range(ROUNDS):
        group = publish(early, request(deep=["/large"]), request(deep=["/other"]))
        assert all(pending.future.result().offset is not None for pending in group)


def test_r33_a_size_limit_in_the_middle_of_an_export_costs_that_request_alone(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Packer.__init__, "__defaults__", (PackageLimits(nodes=100),))
        early = author.early()
    for _ in range(ROUNDS):
        refused, accepted = publish(early, request(deep=["/large"]), request("/small"))
        assert isinstance(refused.future.exception(), PackageRefused)
        assert accepted.future.result().offset is not None
    [pending] = publish(author.early(), request(deep=["/large"]))
    assert pending.future.result().offset is not None


def test_r33_a_publisher_goes_on_once_its_blob_store_does(
    author: Author, blobs: FailingBlobs
) -> None:
    """Several clients at once: each gets the store's reason or an offset, and no other error."""
    intake = RequestIntake(author.replica(), SystemClock(), early=author.early())
    blobs.program = 300_000
    with running([intake]), ThreadPoolExecutor(4) as clients:
        failed = list(clients.map(lambda n: outcome(intake, n), range(24)))
        assert {type(one) for one in failed} == {BlobStoreUnavailable, Accepted}
        blobs.program = None
        accepted = list(clients.map(lambda n: outcome(intake, n), range(12)))
        assert {type(one) for one in accepted} == {Accepted}
        intake.check()


def test_r26_a_put_that_outlasts_its_transaction_costs_no_request_its_answer(
    author: Author, blobs: FailingBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[psycopg.Connection] = []

    def opened() -> psycopg.Connection:
        sessions.append(author.lock_connection())
        if len(sessions) == 1:
            sessions[0].execute("SET idle_in_transaction_session_timeout = 500")
        return sessions[-1]

    def stalls(key: str, chunks: Iterable[bytes]) -> Any:
        if len(sessions) == 1:
            eventually(lambda: not is_alive(sessions[0]), what="Postgres has ended the session")
        return put(key, chunks)

    put = blobs.put
    monkeypatch.setattr(blobs, "put", stalls)
    intake = RequestIntake(author.replica(lock=AppendLock(opened)), SystemClock())
    large, small = (intake.submit(one) for one in (request(deep=["/large"]), request("/small")))
    with running([intake]):
        assert [one.future.result(_DEADLINE_S).offset for one in (large, small)] == [0, 1]
    assert len(sessions) == 2


def outcome(intake: RequestIntake, number: int) -> Accepted | BaseException:
    requested = (
        request("/small") if number % 3 == 0 else request(deep=["/large", "/other"][number % 2 :])
    )
    future = intake.submit(requested).future
    return future.exception(_DEADLINE_S) or future.result()
