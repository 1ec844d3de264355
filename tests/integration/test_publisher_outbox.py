"""What a group of requests leaves in the author's database, and what is forgotten again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.blobs.api import BlobStoreUnavailable, package_key
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.messaging.api import Journal, Outgoing
from packhorse.packages.body import unpack
from packhorse.packages.build import PathMissing, PathRefused
from packhorse.wire.messages import Action
from packhorse_services.publisher.outbox import journal_appender
from packhorse_services.publisher.outbox.idempotency import KeyReused
from packhorse_services.publisher.outbox.request import DistributionRequest, Draft, Pending
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.publishing import JournalPatience, OutboxFull
from tests.harness.clock import ManualClock
from tests.harness.memory_author import memory_author
from tests.harness.noise import noise
from tests.harness.publishing import (
    TOPICS,
    Author,
    AwayJournal,
    JournalDouble,
    page,
    publish,
    request,
)
from tests.harness.tidying import tidy


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = (page(f"/p{number}") for number in range(5))
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


def test_r7_a_large_body_is_stored_and_remembered_with_its_offset(author: Author) -> None:
    author.write(Node("/big", "page", json.dumps({"noise": noise()})))
    publish(author.replica(), request("/p0"))
    [pending] = publish(author.replica(), request("/big"))
    [_, placed] = author.journaled()
    key = package_key(pending.package_id)
    body = placed.message.body
    assert body is not None
    assert body.reference == key
    assert [node.path for node in unpack(placed.message, author.blobs)] == ["/big"]
    rows = author.rows(
        "SELECT key, package_id, length, sha256, log_offset FROM bookkeeping.stored_package"
    )
    length = placed.message.entry.body_length
    assert rows == [(key, pending.package_id, length, body.sha256.hex(), placed.offset)]


def test_the_outbox_keeps_no_bodies(author: Author) -> None:
    publish(author.replica(), request("/p0"), request("/p1"))
    rows = author.rows("SELECT log_offset, value FROM bookkeeping.outbox ORDER BY sequence")
    assert rows == [(0, None), (1, None)]
    assert author.rows("SELECT settled_offset, sequence FROM bookkeeping.slot") == [(1, 2)]


def test_one_bad_request_fails_alone(author: Author) -> None:
    group = publish(
        author.replica(),
        request("/p0"),
        request("/p0", "/gone"),
        request("/p1", roots=["/elsewhere"]),
        request("/p2"),
    )
    assert isinstance(group[1].future.exception(), PathMissing)
    assert isinstance(group[2].future.exception(), PathRefused)
    assert [group[i].future.result().offset for i in (0, 3)] == [0, 1]
    assert len(author.journaled()) == 2


def test_a_request_that_breaks_its_statement_fails_alone(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Packer.draft

    def divide(
        packer: Packer, connection: psycopg.Connection, requested: DistributionRequest, *rest: Any
    ) -> Draft:
        if requested.paths == ("/p1",):
            connection.execute("SELECT 1 / 0")
        return draft(packer, connection, requested, *rest)

    monkeypatch.setattr(Packer, "draft", divide)
    group = publish(author.replica(), request("/p0"), request("/p1"), request("/p2"))
    assert isinstance(group[1].future.exception(), psycopg.errors.DivisionByZero)
    assert [group[i].future.result().offset for i in (0, 2)] == [0, 1]


def test_a_blob_store_that_is_away_fails_only_what_needs_it(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    author.write(Node("/big", "page", json.dumps({"noise": noise()})))

    def away(*_: object, **__: object) -> None:
        raise BlobStoreUnavailable("the store is away")

    monkeypatch.setattr(author.blobs, "put", away)
    group = publish(author.replica(), request("/p0"), request("/big"))
    assert isinstance(group[1].future.exception(), BlobStoreUnavailable)
    assert group[0].future.result().offset == 0
    assert author.rows("SELECT FROM bookkeeping.stored_package") == []


def test_r23_exports_and_bookkeeping_have_their_own_rights(author: Author) -> None:
    publish(author.replica(), request("/p0"))
    with connect(author.database_url, "tests") as connection:
        for role, statement in (
            ("packhorse_exporter", "SELECT FROM bookkeeping.outbox"),
            ("packhorse_importer", "SELECT FROM bookkeeping.slot"),
            ("packhorse_bookkeeper", "SELECT FROM content.node"),
            ("packhorse_exporter", "DELETE FROM content.node"),
        ):
            act_as(connection, role)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
            connection.rollback()


def test_r23_an_export_has_the_rights_of_the_exporter(author: Author) -> None:
    with psycopg.connect(author.database_url) as connection:
        connection.execute("REVOKE SELECT ON content.node FROM packhorse_exporter")
    group = publish(author.replica(), request("/p0"), request(action=Action.DELETE, deep=["/p1"]))
    assert isinstance(group[0].future.exception(), psycopg.errors.InsufficientPrivilege)
    assert group[1].future.result().offset == 0


def test_r5_a_key_outlives_replicas_and_its_answer_follows_the_package(author: Author) -> None:
    away = AwayJournal(author.journal)
    away.away = True
    [first] = publish(author.replica(journal=away), request("/p0", key="k"))
    assert first.future.result().offset is None
    [again] = publish(author.replica(journal=away), request("/p0", key="k"))
    assert again.future.result().package_id == first.package_id
    [late] = publish(author.replica(), request("/p0", key="k"))
    assert (late.future.result().package_id, late.future.result().offset) == (first.package_id, 0)
    [other] = publish(author.replica(), request("/p1", key="k"))
    assert isinstance(other.future.exception(), KeyReused)
    [deep] = publish(author.replica(), request(deep=["/p0"], key="k"))
    assert isinstance(deep.future.exception(), KeyReused)
    assert len(author.journaled()) == 1


def test_r5_each_agent_has_keys_of_its_own(author: Author) -> None:
    for path, agent in (("/p0", "one"), ("/p1", "two")):
        [pending] = publish(author.replica(agent=agent), request(path, key="k"))
        assert not pending.future.result().repeated
    assert len(author.journaled()) == 2


def test_the_outbox_fills_while_the_journal_is_away(author: Author) -> None:
    away, clock = AwayJournal(author.journal), ManualClock()
    away.away = True
    replica = author.replica(
        journal=away, clock=clock, patience=JournalPatience(reconcile_s=0, outbox_packages=3)
    )
    for number in range(3):
        [pending] = publish(replica, request(f"/p{number}"))
        assert pending.future.result().offset is None
    [refused] = publish(replica, request("/p3"))
    assert isinstance(refused.future.exception(), OutboxFull)
    away.away = False
    [still] = publish(replica, request("/p3"))
    assert isinstance(still.future.exception(), OutboxFull), "the journal is left alone for a while"
    clock.advance(1.1)
    [accepted] = publish(replica, request("/p3"))
    assert accepted.future.result().offset == 3
    assert [one.message.entry.paths for one in author.journaled()] == [
        ("/p0",),
        ("/p1",),
        ("/p2",),
        ("/p3",),
    ]


def test_deletions_carry_no_body(author: Author) -> None:
    publish(author.replica(), *(request("/gone", action=Action(kind)) for kind in ACTIONS))
    placed = author.journaled()
    assert [one.message.entry.action.value for one in placed] == list(ACTIONS)
    assert all(one.message.body is None for one in placed)


ACTIONS = ("DELETE", "INVALIDATE", "TEST")


def test_old_keys_and_distributions_are_forgotten(author: Author) -> None:
    replica = author.replica()
    for number in range(5):
        publish(replica, request(f"/p{number}", key=f"k{number}"))
    with connect(author.database_url, "tests") as connection:
        act_as(connection, BOOKKEEPER)
        connection.execute(
            "UPDATE bookkeeping.idempotency_key SET created_at = now() - interval '25 hours' "
            "WHERE key <> 'k4'"
        )
    author.journal.truncate(TOPICS.package, 3)
    tidy(author, idempotency_hours=24)
    assert author.rows("SELECT key FROM bookkeeping.idempotency_key") == [("k4",)]
    rows = author.rows("SELECT log_offset FROM bookkeeping.outbox ORDER BY 1")
    assert rows == [(3,), (4,)]
    [anew] = publish(replica, request("/p0", key="k0"))
    assert not anew.future.result().repeated


def test_what_waits_is_never_forgotten(author: Author) -> None:
    publish(author.replica(), request("/p1"))  # so that the journal is known
    away = AwayJournal(author.journal)
    away.away = True
    pending = Pending(request("/p0"))
    author.replica(journal=away).publish([pending])
    tidy(author)
    assert len(author.rows("SELECT FROM bookkeeping.outbox WHERE log_offset IS NULL")) == 1


class WatchedJournal(JournalDouble):
    """Remembers where ranges of it were read from."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.read_from: list[object] = []

    def reader(self, topic: str, start: object, **options: object) -> object:
        self.read_from.append(start)
        return self._journal.reader(topic, start, **options)  # type: ignore[arg-type]


def test_r26_a_restart_searches_only_what_is_not_accounted_for(author: Author) -> None:
    for _ in range(2):
        publish(author.replica(), request("/p0"), request("/p1"), request("/p2"))
    watched = WatchedJournal(author.journal)
    restarted = author.replica(journal=watched)
    restarted.reconcile()
    assert watched.read_from == []
    lost = AwayJournal(author.journal)
    lost.away = True
    publish(author.replica(journal=lost), request("/p3"))
    author.journal.append(TOPICS.package, Outgoing(b"of somebody else")).result()
    restarted.reconcile()
    assert watched.read_from == [6, 7], "what waits, then what came before it was appended"
    assert author.rows("SELECT settled_offset FROM bookkeeping.slot") == [(7,)]


def test_r26_what_is_appended_again_in_many_parts_is_looked_for_once(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_appender, "_WINDOW", 2)
    lost = AwayJournal(author.journal)
    lost.away = True
    publish(author.replica(journal=lost), *(request(f"/p{number % 3}") for number in range(6)))
    watched = WatchedJournal(author.journal)
    assert author.replica(journal=watched).reconcile()
    assert len(author.journaled()) == 6
    assert watched.read_from == [0, 2, 4], "each part of the journal once"
