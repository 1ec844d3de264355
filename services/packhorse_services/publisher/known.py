"""What is known of a request before it is exported: an earlier try, or an earlier request.

It runs in the slot's transaction, as the bookkeeper: what it finds can't change until the commit.
"""

from collections.abc import Sequence

from psycopg import Connection

from packhorse_services.publisher import idempotency, outbox
from packhorse_services.publisher.idempotency import KeyReused, KnownKey, key_of
from packhorse_services.publisher.pending import Pending


def answer(connection: Connection, agent: str, group: Sequence[Pending]) -> list[Pending]:
    """Answer what was committed by an earlier try or request; returns the others, in order."""
    tried = [pending.package_id for pending in group if pending.package_id]
    committed = outbox.offsets_of(connection, tried) if tried else {}
    keys = [key for pending in group if (key := key_of(pending.request))]
    known = idempotency.find(connection, agent, keys)
    fresh = []
    for pending in group:
        found = known.get(key_of(pending.request) or ("", ""))
        if pending.future.done():
            continue
        if pending.package_id in committed:
            pending.answer(committed[pending.package_id])
        elif found is not None:
            _repeat(pending, found)
        else:
            fresh.append(pending)
    return fresh


def remember(connection: Connection, agent: str, made: Sequence[Pending]) -> None:
    """Note, with the packages' commit, what the requests have led to."""
    packages = [(pending.package_id, pending.request) for pending in made]
    idempotency.write(connection, agent, packages)


def _repeat(pending: Pending, known: KnownKey) -> None:
    if known.fingerprint != pending.request.fingerprint():
        pending.fail(KeyReused("this Idempotency-Key was used for another request; use a new one"))
        return
    pending.answer(known.offset, package_id=known.package_id, repeated=True)
