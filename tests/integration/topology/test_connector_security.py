"""What a cluster takes from the network: signed, new, in time, in bounds."""

import contextlib
import gzip
import json
import logging
import socket
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest

from packhorse.runtime import audit
from packhorse.runtime.audit import RefusalLimit
from packhorse.topology.connector_keys import KEY_TTL_S
from packhorse.topology.rejection import RejectionReason
from packhorse.topology.signing import SignedRequest
from packhorse_services.topology.connectors.coding import JSON, MAX_WIRE_BYTES
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import Cluster, cluster, running
from tests.harness.topology.forgeries import OTHER_KEYS, forgeries, sent
from tests.harness.topology.strangers import KEYS, Stranger, rejected
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def peer(databases: Databases) -> Iterator[Cluster]:
    one = Cluster("one", databases.new(), timeout_s=60.0)
    with running(one):
        yield one


@pytest.fixture
def far(peer: Cluster) -> Iterator[Stranger]:
    stranger = Stranger(peer)
    yield stranger
    stranger.close()
    peer.assembled.connectors._knowledge.forget("far-1", holder="")


def test_a_signed_announcement_is_answered_with_a_signed_one(peer: Cluster, far: Stranger) -> None:
    answer = far.send(far.signed())
    assert answer.status_code == 200
    assert {"signature", "signature-input", "content-digest"} <= set(answer.headers)
    assert answer.json()["owner"] == "one-1"
    assert peer.remotes() == ["far"]


def test_forgeries_get_401_and_are_counted(peer: Cluster, far: Stranger) -> None:
    for name, forged, reason in forgeries(far.signed()):
        if forged.target != far.signed().target and "?" not in forged.target:
            continue  # another path is another instance, or no route at all: see below
        before = rejected(RejectionReason.MALFORMED if "?" in forged.target else reason)
        answer = far.send(forged)
        assert answer.status_code == 401, name
        assert answer.headers["www-authenticate"].startswith("Signature"), name
        after = rejected(RejectionReason.MALFORMED if "?" in forged.target else reason)
        assert after == before + 1, name
    assert peer.remotes() == []


def test_another_instances_url_is_not_for_this_key(peer: Cluster, far: Stranger) -> None:
    before = rejected(RejectionReason.FOREIGN)
    other = far.signed()
    answer = far.send(replace(other, target=other.target.replace("far-1", "far-2")))
    assert (answer.status_code, rejected(RejectionReason.FOREIGN)) == (401, before + 1)


def test_a_replay_is_refused_also_by_another_instance_and_after_a_restart(
    peer: Cluster, far: Stranger
) -> None:
    taken = far.signed()
    assert far.send(taken).status_code == 200
    before = rejected(RejectionReason.REPLAY)
    assert far.send(taken).status_code == 401
    restarted = Cluster("one", peer.database_url, public_url=f"{peer.url}/topology/connectors")
    with running(restarted):
        other = Stranger(restarted)
        assert other.send(taken).status_code == 401
        assert other.send(far.signed()).status_code == 200
        other.close()
    assert rejected(RejectionReason.REPLAY) == before + 2


def test_old_and_future_requests_are_refused(peer: Cluster, far: Stranger) -> None:
    now = time.time()
    cases = {
        now - 120: RejectionReason.EXPIRED,
        now - 2 * KEY_TTL_S: RejectionReason.EXPIRED,
        now + 60: RejectionReason.FUTURE,
    }
    for at, reason in cases.items():
        before = rejected(reason)
        assert far.send(far.signed(now=at)).status_code == 401
        assert rejected(reason) == before + 1
    assert peer.remotes() == []


def test_a_foreign_delete_removes_nothing(peer: Cluster, far: Stranger) -> None:
    assert far.send(far.signed()).status_code == 200
    thief = Stranger(peer, "thief")
    own = thief.signed(method="DELETE")
    for forged in (
        replace(own, target=own.target.replace("thief-1", "far-1")),
        replace(far.signed(), method="DELETE", body=b""),
        replace(far.signed(method="DELETE"), headers=own.headers),
    ):
        assert thief.send(forged).status_code == 401
    assert thief.send(own).status_code == 204
    assert peer.remotes() == ["far"]
    assert far.send(far.signed(method="DELETE")).status_code == 204
    assert peer.remotes() == []
    thief.close()


def test_who_disconnects_and_who_is_refused_has_a_line_in_the_audit_log(
    far: Stranger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    monkeypatch.setattr(audit, "_limit", RefusalLimit())
    assert far.send(far.signed()).status_code == 200
    assert far.send(replace(far.signed(), body=b"{}")).status_code == 401
    assert far.send(far.signed(method="DELETE")).status_code == 204
    path = "/topology/connectors/far-1"
    wanted = [("announce", "REFUSED", path), ("disconnect", "DONE", path)]
    eventually(lambda: audited(caplog)[-2:] == wanted, what="the lines, behind the answers")


def audited(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    lines = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
    return [(one["operation"], str(one["outcome"]), one["object"]) for one in lines]


def test_a_large_body_is_refused_before_it_is_read(far: Stranger) -> None:
    body = b" " * (MAX_WIRE_BYTES + 1)
    assert far.send(far.signed(body)).status_code == 413
    unsigned = replace(far.signed(), headers=(), body=b" " * 100_000_000)
    with contextlib.suppress(httpx.TransportError):  # the answer may come, or the end alone
        assert far.send(unsigned).status_code == 401


def test_nobody_waits_for_the_body_of_a_wrong_signature(peer: Cluster, far: Stranger) -> None:
    """Whoever reaches the port could otherwise hold the places of those who have the key."""
    wrong = sent(far.request(), b"", time.time(), OTHER_KEYS)
    lines = [f"PUT {wrong.target} HTTP/1.1", f"host: {wrong.authority}", "content-length: 500000"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in wrong.headers), "", "a"])
    with socket.create_connection(("127.0.0.1", peer.port), timeout=120) as slow:
        slow.sendall(head.encode())
        assert slow.recv(12) == b"HTTP/1.1 401"


def test_a_bomb_is_refused_in_flat_memory(far: Stranger) -> None:
    bomb = far.signed(gzip.compress(b" " * 60_000_000, 1), content_encoding="gzip")
    tracemalloc.start()
    answer = far.send(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 413
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (gzip.compress(b"{}")[:-4], {"content_encoding": "gzip"}),
        (gzip.compress(b"{}") * 2, {"content_encoding": "gzip"}),
        (b"{}", {"content_encoding": "gzip"}),
        (b"{}", {"content_encoding": "br"}),
        (b"{}", {"content_type": "text/plain"}),
    ],
    ids=["cut off", "two in one", "not compressed", "of another kind", "of another type"],
)
def test_other_codings_are_refused(far: Stranger, body: bytes, headers: dict[str, str]) -> None:
    before = rejected(RejectionReason.ANNOUNCEMENT)
    assert far.send(far.signed(body, **headers)).status_code == 415
    assert rejected(RejectionReason.ANNOUNCEMENT) == before + 1


def test_gzip_is_taken_and_given(peer: Cluster, far: Stranger) -> None:
    peer.topology.own = cluster("one", note="a long property " * 200)
    packed = gzip.compress(json.dumps(far.document()).encode())
    answer = far.send(far.signed(packed, content_encoding="gzip"))
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert "content-encoding" in answer.headers["signature-input"]
    plain = far.signed(packed, content_encoding="gzip").with_another("accept-encoding", "identity")
    assert "content-encoding" not in far.send(plain).headers
    peer.topology.own = cluster("one")


@pytest.mark.parametrize(
    "settings",
    [
        {"allow": "10.0.0.0/8"},
        {"allow": "10.0.0.0/8", "shared_key": None},
        {"shared_key": None},  # a browser, or a proxy for others, has this machine's address, too
    ],
)
def test_who_is_not_on_the_allow_list_gets_404(
    databases: Databases, settings: dict[str, Any]
) -> None:
    one = Cluster("one", databases.new(), **settings)
    with running(one):
        before, far = rejected(RejectionReason.UNTRUSTED), Stranger(one)
        assert far.send(far.signed()).status_code == 404
        assert far.send(far.signed(method="DELETE")).status_code == 404
        assert rejected(RejectionReason.UNTRUSTED) == before + 2
        assert one.remotes() == []
        far.close()


def test_behind_a_proxy_the_public_url_is_what_is_signed(databases: Databases) -> None:
    one = Cluster("one", databases.new(), public_url="https://public.example/far/away")
    with running(one):
        far = Stranger(one)
        inside = far.signed()
        plain = SignedRequest("PUT", "public.example", "/far/away/far-1", {"content-type": JSON})
        outside = sent(plain, inside.body, time.time(), KEYS)
        passed_on = replace(outside, authority="inside.example", target=inside.target)
        assert far.send(passed_on).status_code == 200
        assert far.send(inside).status_code == 401
        far.close()


def test_an_encrypted_cluster_takes_nothing_plain(databases: Databases) -> None:
    one = Cluster("one", databases.new(), encryption=True)
    two = Cluster("two", databases.new(), urls=(one.url,))
    with running(one, two):
        far = Stranger(one)
        before = rejected(RejectionReason.SEAL)
        assert far.send(far.signed()).status_code == 401
        assert rejected(RejectionReason.SEAL) > before
        eventually(lambda: two.states() == [ConnectorPhase.FAILED])
        far.close()


def test_a_cluster_without_a_view_says_so(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    one.topology.own = None
    with running(one):
        far = Stranger(one)
        assert far.send(far.signed()).status_code == 503
        far.close()


def test_old_nonces_are_forgotten(peer: Cluster, far: Stranger) -> None:
    with psycopg.connect(peer.database_url, autocommit=True) as connection:
        connection.execute("UPDATE topology.nonce SET expires_at = now() - interval '1 s'")
        assert far.send(far.signed()).status_code == 200
        assert far.send(far.signed()).status_code == 200
        [(left,)] = connection.execute(
            "SELECT count(*) FROM topology.nonce WHERE expires_at < now()"
        )
        assert left == 0
